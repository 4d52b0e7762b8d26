#pragma once

// ConversationPrompt: messages as the ids that the engine gets, with what the layout knows about
// them: ids that end the model's turn, and positions at which a later conversation is likely to
// leave this one.
//
// Threads: pure functions.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "recipe/layout.h"
#include "text/tokenizer.h"

namespace deepinfer::llm {

struct ConversationPrompt {
  std::vector<int32_t> ids;
  std::vector<int32_t> stop_ids;      // that end the assistant's turn
  std::vector<size_t> resume_points;  // ascending, see resume_points()
};

Result<ConversationPrompt> encode_conversation(const recipe::Layout& layout,
                                               const recipe::Conversation& conversation,
                                               const text::Tokenizer& tokenizer);

// Ids of the control tokens that end an assistant's turn.
std::vector<int32_t> turn_end_ids(const recipe::Layout& layout, const text::Tokenizer& tokenizer);

// Positions of `ids`, which are those of `rendered`: where the system part ends, that is behind the
// last control token that any conversation with the same system messages, tools and options has
// too, and behind the end of each turn (the latest 64 of them).
std::vector<size_t> resume_points(const recipe::Layout& layout,
                                  const recipe::Conversation& conversation,
                                  const recipe::PromptPieces& rendered,
                                  const text::Tokenizer& tokenizer, std::span<const int32_t> ids);

}  // namespace deepinfer::llm
