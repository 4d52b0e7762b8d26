#pragma once

// Character classes of the pre-tokenizer patterns, Unicode 16.0 as measured from the engine that
// the patterns were written for (tests/golden/tokenizer, tools/make_unicode_classes.py).
//
// Threads: any.

#include <cstdint>

namespace deepinfer::text {

// Bits of a class byte.
inline constexpr uint8_t kLetter = 1;               // \p{L}
inline constexpr uint8_t kLetterOrMark = 2;         // [\p{L}\p{M}]
inline constexpr uint8_t kNumber = 4;               // \p{N}
inline constexpr uint8_t kPunctuationOrSymbol = 8;  // [\p{P}\p{S}]
inline constexpr uint8_t kSpace = 16;               // \s, White_Space
inline constexpr uint8_t kNewline = 32;             // CR, LF
inline constexpr uint8_t kHanOrKana = 64;           // U+3040-30FF, U+4E00-9FA5

inline constexpr uint32_t kCodePoints = 0x110000;

// [kCodePoints] class bytes, built at the first call (under 1 ms), valid for ever.
const uint8_t* unicode_classes();

}  // namespace deepinfer::text
