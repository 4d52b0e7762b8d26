#include "image/span.h"

#include <fmt/format.h>

#include <algorithm>

#include "image/fault.h"

namespace deepinfer::image {
namespace {

// Of the ids above the vocabulary that the engine reserves.
constexpr int32_t kPadOffset = 1;
constexpr int32_t kImageOffset = 2;

void put_word(TokenRecord& record, size_t at, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) record[at + i] = static_cast<std::byte>(value >> (8 * i) & 0xFF);
}

}  // namespace

std::vector<TokenType> token_types(const Layout& layout) {
  std::vector<TokenType> types;
  types.reserve(layout.tokens);
  types.push_back(TokenType::start);
  for (uint32_t row = 0; row < layout.llm_h; ++row) {
    types.insert(types.end(), layout.llm_w, TokenType::image);
    types.push_back(TokenType::newline);
  }
  types.push_back(TokenType::end);
  return types;
}

size_t image_rows_before(const Layout& layout, size_t offset) {
  check(offset <= layout.tokens, "offset in a span");
  if (offset <= 1) return 0;
  const size_t line = size_t{layout.llm_w} + 1;
  const size_t lines = (offset - 1) / line;
  const size_t rest = std::min<size_t>((offset - 1) % line, layout.llm_w);
  return std::min<size_t>(lines * layout.llm_w + rest, layout.cells());
}

Result<ExpandedPrompt> expand_prompt(std::span<const int32_t> ids, std::span<const Layout> images,
                                     int32_t placeholder, int32_t vocab, Mismatch mismatch,
                                     const std::string& thing) {
  const auto places = static_cast<size_t>(std::ranges::count(ids, placeholder));
  if (places != images.size() && mismatch == Mismatch::refuse) {
    return image_error(ImageFault::image_count_mismatch, thing,
                       fmt::format("the prompt has {} image placeholders, the request {} images",
                                   places, images.size()));
  }
  ExpandedPrompt out;
  size_t next = 0;
  for (const int32_t id : ids) {
    if (id != placeholder || next == images.size()) {
      out.ids.push_back(id);
      out.types.push_back(TokenType::undefined);
      continue;
    }
    const Layout& layout = images[next];
    out.spans.push_back({.start = out.ids.size(), .count = layout.tokens, .image = next});
    out.ids.push_back(vocab + kImageOffset);
    out.ids.insert(out.ids.end(), layout.tokens - 1, vocab + kPadOffset);
    const std::vector<TokenType> types = token_types(layout);
    out.types.insert(out.types.end(), types.begin(), types.end());
    ++next;
  }
  return out;
}

TokenRecord image_token_record(const Sha256Digest& digest, uint32_t index) {
  TokenRecord record;
  put_word(record, 0, 0xFFFFFFFFu);
  std::ranges::copy(digest, record.begin() + 4);
  put_word(record, 36, index);
  return record;
}

}  // namespace deepinfer::image
