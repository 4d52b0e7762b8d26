#pragma once

// TokenHistory: the ids under which a conversation was computed so far. A later prompt that repeats
// the conversation gets exactly those ids for it, and new ones only for what is new: text that the
// model wrote would often be cut into other tokens than those that it was sampled as, and nothing
// behind the first difference could be reused.
//
//   std::vector<int32_t> ids = TRY(history.encode(rendered, tokenizer));
//   ... sampled ids of the answer ...
//   history.append(answer_text, answer_ids);
//
// Rule: the known text is used up to the last mark (end of a prompt, end of an answer) that the new
// prompt's text repeats and behind which a control token or nothing follows; there, the cut between
// tokens is the same whatever comes next.
//
// Threads: one at a time.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "recipe/prompt_pieces.h"
#include "text/tokenizer.h"

namespace deepinfer::llm {

class TokenHistory {
 public:
  // Ids of the prompt; it becomes the history. On an error nothing changes.
  Result<std::vector<int32_t>> encode(const recipe::PromptPieces& prompt,
                                      const text::Tokenizer& tokenizer);
  // What was sampled behind the prompt, without the id that ended the turn.
  void append(std::string_view text, std::span<const int32_t> ids);
  void clear() { *this = {}; }

  size_t known_tokens() const { return ids_.size(); }
  // Of the last encode(): ids that were known before.
  size_t reused_tokens() const { return reused_; }

 private:
  struct Mark {
    size_t bytes = 0;   // of text_
    size_t tokens = 0;  // of ids_
  };
  std::string text_;
  std::vector<int32_t> ids_;
  std::vector<Mark> marks_;  // ascending
  size_t reused_ = 0;
};

}  // namespace deepinfer::llm
