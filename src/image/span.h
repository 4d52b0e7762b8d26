#pragma once

// The positions that a picture takes in the prompt: START, (IMAGE x llm_w, NEWLINE) x llm_h, END.
//
// Source: spec vision.md sections 7 and 9. Threads: pure functions.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "image/layout.h"

namespace deepinfer::image {

// As the official type tensor numbers them. From `image` on, a position belongs to a picture.
enum class TokenType : int32_t {
  undefined = 0,  // all text
  text = 1,       // not used
  image = 2,
  start = 3,
  end = 4,
  newline = 5,
  pad = 6,  // not used
};

// [layout.tokens]
std::vector<TokenType> token_types(const Layout& layout);

// IMAGE positions among the first `offset` positions of a span: the row of the encoder's result
// that the next IMAGE position takes. offset <= layout.tokens.
size_t image_rows_before(const Layout& layout, size_t offset);

struct ImageSpan {
  size_t start = 0;  // position in the expanded prompt
  size_t count = 0;
  size_t image = 0;  // which picture
  bool operator==(const ImageSpan&) const = default;
};

struct ExpandedPrompt {
  std::vector<int32_t> ids;      // of a span: vocab + 2 first, then vocab + 1
  std::vector<TokenType> types;  // [ids]
  std::vector<ImageSpan> spans;  // ascending
};

// When the placeholders and the pictures are not as many.
enum class Mismatch : uint8_t {
  refuse,  // ImageCountMismatch
  allow,   // more placeholders stay tokens, more pictures are left out (DeepInfer 0.1.0)
};

// Replaces placeholder number i (the id `placeholder`) by the span of images[i].
Result<ExpandedPrompt> expand_prompt(std::span<const int32_t> ids, std::span<const Layout> images,
                                     int32_t placeholder, int32_t vocab, Mismatch mismatch,
                                     const std::string& thing);

// What stands for position `index` of a picture's span where the identity of tokens counts (prefix
// reuse): 0xFFFFFFFF, the digest, the index, words little-endian. Text is the id's word alone.
using TokenRecord = std::array<std::byte, 40>;
TokenRecord image_token_record(const Sha256Digest& digest, uint32_t index);

}  // namespace deepinfer::image
