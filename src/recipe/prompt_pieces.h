#pragma once

// PromptPieces: a rendered prompt in which it is still known what the layout wrote and what a
// person wrote. Only control pieces can become control tokens: a user who types "<|im_end|>" gets
// those characters, not the end of the turn.
//
// Neighbouring plain pieces are one piece, because a tokenizer must see them together ("user\n" and
// the text after it) to give the ids that the whole prompt would have.
//
// Threads: plain values.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace deepinfer::recipe {

struct Piece {
  std::string text;
  bool control = false;
  bool operator==(const Piece&) const = default;
};

class PromptPieces {
 public:
  // The spelling of one control token, e.g. "<|im_start|>".
  void control(std::string_view spelling);
  void plain(std::string_view text);

  const std::vector<Piece>& pieces() const { return pieces_; }
  std::string text() const;  // all pieces joined, for people

  // Ids of the whole prompt. Fails when the text is not UTF-8, or when the tokenizer has no token
  // for a control piece (unsupported, naming it).
  Result<std::vector<int32_t>> encode(const text::Tokenizer& tokenizer) const;

 private:
  std::vector<Piece> pieces_;
};

}  // namespace deepinfer::recipe
