#include "llm/token_history.h"

#include <algorithm>

namespace deepinfer::llm {
namespace {

// A prompt's pieces from `byte` on, at which a control token or the end stands.
recipe::PromptPieces tail_of(const recipe::PromptPieces& prompt, size_t byte) {
  recipe::PromptPieces tail;
  const std::string_view text = prompt.text();
  size_t done = byte;
  for (const recipe::ByteRange& range : prompt.control_ranges()) {
    if (range.begin < byte) continue;
    tail.plain(text.substr(done, range.begin - done));
    tail.control(text.substr(range.begin, range.end - range.begin));
    done = range.end;
  }
  tail.plain(text.substr(done));
  return tail;
}

bool cuts_at(const recipe::PromptPieces& prompt, size_t byte) {
  if (byte == prompt.text().size()) return true;
  return std::ranges::any_of(prompt.control_ranges(), [byte](const recipe::ByteRange& range) {
    return range.begin == byte;
  });
}

}  // namespace

Result<std::vector<int32_t>> TokenHistory::encode(const recipe::PromptPieces& prompt,
                                                  const text::Tokenizer& tokenizer) {
  const std::string_view text = prompt.text();
  const size_t shared = static_cast<size_t>(
      std::mismatch(text.begin(), text.end(), text_.begin(), text_.end()).first - text.begin());
  std::vector<Mark> marks = marks_;
  while (!marks.empty() && (marks.back().bytes > shared || !cuts_at(prompt, marks.back().bytes)))
    marks.pop_back();
  const Mark known = marks.empty() ? Mark() : marks.back();
  const std::vector<int32_t> tail = TRY(tail_of(prompt, known.bytes).encode(tokenizer));
  ids_.resize(known.tokens);
  ids_.insert(ids_.end(), tail.begin(), tail.end());
  text_ = text;
  marks_ = std::move(marks);
  marks_.push_back({text_.size(), ids_.size()});
  reused_ = known.tokens;
  return ids_;
}

void TokenHistory::append(std::string_view text, std::span<const int32_t> ids) {
  text_ += text;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  marks_.push_back({text_.size(), ids_.size()});
}

}  // namespace deepinfer::llm
