#pragma once

// PromptPieces: a rendered prompt in which it is still known what the layout wrote and what a
// person wrote. Only control pieces can become control tokens: a user who types "<|im_end|>" gets
// those characters, not the end of the turn.
//
// The prompt is one text with the byte ranges of its control tokens. What stands between two of
// them is one plain run, however many pieces it was made of, because a tokenizer must see it
// together ("user\n" and the text after it) to give the ids that the whole prompt would have.
//
// Threads: plain values.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "recipe/conversation.h"
#include "text/tokenizer.h"

namespace deepinfer::recipe {

struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const ByteRange&) const = default;
};

class PromptPieces {
 public:
  // The spelling of one control token, e.g. "<|im_start|>".
  void control(std::string_view spelling);
  void plain(std::string_view text) { text_ += text; }
  // The text, and the control token `mark` at the place of each image.
  void content(const Content& content, std::string_view mark);
  void reserve(size_t bytes) { text_.reserve(bytes); }

  const std::string& text() const { return text_; }
  std::span<const ByteRange> control_ranges() const { return controls_; }
  std::span<const Image> images() const { return images_; }  // in the order of their marks

  // Ids of the whole prompt. Fails when the text is not UTF-8, or when the tokenizer has no token
  // for a control piece (unsupported, naming it).
  Result<std::vector<int32_t>> encode(const text::Tokenizer& tokenizer) const;

 private:
  std::string text_;
  std::vector<ByteRange> controls_;  // in order, not overlapping
  std::vector<Image> images_;
};

}  // namespace deepinfer::recipe
