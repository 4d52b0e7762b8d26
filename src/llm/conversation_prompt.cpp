#include "llm/conversation_prompt.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

namespace deepinfer::llm {
namespace {

constexpr size_t kMostTurns = 64;

// Control tokens of `rendered` that every conversation of the same head has: those that end within
// the text that it shares with one whose first question is empty.
size_t shared_controls(const recipe::Layout& layout, const recipe::Conversation& conversation,
                       const recipe::PromptPieces& rendered) {
  recipe::Conversation head = conversation;
  size_t messages = 0;
  while (messages < head.messages.size() && head.messages[messages].role == recipe::Role::system)
    ++messages;
  head.messages.resize(messages);
  head.messages.push_back({recipe::Role::user, ""});
  const Result<recipe::PromptPieces> other = layout.render(head);
  if (!other.ok()) return 0;
  const std::string_view a = rendered.text(), b = other.value().text();
  const size_t shared =
      static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  size_t controls = 0;
  for (const recipe::ByteRange& range : rendered.control_ranges()) controls += range.end <= shared;
  return controls;
}

}  // namespace

std::vector<int32_t> turn_end_ids(const recipe::Layout& layout, const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (std::string_view spelling : layout.turn_ends) {
    if (const auto id = tokenizer.token_to_id(spelling)) ids.push_back(*id);
  }
  return ids;
}

std::vector<size_t> resume_points(const recipe::Layout& layout,
                                  const recipe::Conversation& conversation,
                                  const recipe::PromptPieces& rendered,
                                  const text::Tokenizer& tokenizer, std::span<const int32_t> ids) {
  // Only control pieces become control tokens, so those among the ids are the pieces, in order.
  std::set<int32_t> controls;
  for (const recipe::ByteRange& range : rendered.control_ranges()) {
    const std::string_view spelling =
        std::string_view(rendered.text()).substr(range.begin, range.end - range.begin);
    if (const auto id = tokenizer.token_to_id(spelling)) controls.insert(*id);
  }
  const std::vector<int32_t> ends = turn_end_ids(layout, tokenizer);
  const size_t head = shared_controls(layout, conversation, rendered);
  std::optional<size_t> system;
  std::vector<size_t> turns;
  size_t seen = 0;
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    if (!controls.contains(ids[i])) continue;
    ++seen;
    if (seen == head) system = i + 1;
    if (seen > head && std::ranges::count(ends, ids[i]) > 0) turns.push_back(i + 1);
  }
  if (turns.size() > kMostTurns) turns.erase(turns.begin(), turns.end() - kMostTurns);
  if (system) turns.insert(turns.begin(), *system);
  return turns;
}

Result<ConversationPrompt> encode_conversation(const recipe::Layout& layout,
                                               const recipe::Conversation& conversation,
                                               const text::Tokenizer& tokenizer) {
  const recipe::PromptPieces rendered = TRY(layout.render(conversation));
  ConversationPrompt prompt;
  prompt.ids = TRY(rendered.encode(tokenizer));
  prompt.stop_ids = turn_end_ids(layout, tokenizer);
  prompt.resume_points = resume_points(layout, conversation, rendered, tokenizer, prompt.ids);
  return prompt;
}

}  // namespace deepinfer::llm
