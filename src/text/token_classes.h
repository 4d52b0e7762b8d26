#pragma once

// Classes of token ids that spell the same word but for case, accents and width, as V4.1's Engram
// hashes them. Source: spec v41.md 4.8.
//
//   key(id) = N(text of the id), or the text when N gives nothing; the vocabulary's raw spelling
//             when the token is a part of a character only
//   N = NFKD, without combining marks (Mn, Mc, Me), lower case, runs of [space tab CR LF] to one
//       space, without space at both ends unless that is all
// Classes are numbered in the order of their first id. Ids without a token are in class 0; nobody
// writes them.
//
// Threads: any.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace deepinfer::text {

// [vocab] of 0 .. classes - 1; vocab may exceed the tokenizer's.
std::vector<int32_t> token_classes(const Tokenizer& tokenizer, size_t vocab);

// N of a valid UTF-8 text.
std::string folded(std::string_view text);

}  // namespace deepinfer::text
