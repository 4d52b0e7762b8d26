#pragma once

// UTF-8: checking, reading valid text, and reading bytes that may be broken.
//
// Threads: any.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer::text {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct CodePoint {
  uint32_t value;
  uint32_t length;  // bytes, 1..4
};

// The character at p; the text is known to be valid UTF-8 and p is at the start of a character.
inline CodePoint read_valid_utf8(const uint8_t* p) {
  const uint32_t b = p[0];
  if (b < 0x80) return {b, 1};
  if (b < 0xE0) return {(b & 0x1Fu) << 6 | (p[1] & 0x3Fu), 2};
  if (b < 0xF0) return {(b & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu), 3};
  return {(b & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu), 4};
}

// The offset of the first byte that is not part of a valid character; text.size() when all are.
size_t find_invalid_utf8(std::string_view text);

void append_utf8(uint32_t code_point, std::string& out);

// Appends bytes as UTF-8 with each maximal invalid part replaced by one U+FFFD (Unicode 3.9, D93b,
// "substitution of maximal subparts"). Stops before a character that is cut off by the end of the
// bytes. Returns the bytes used, at least bytes.size() - 3.
size_t append_replacing_invalid(std::string_view bytes, std::string& out);

}  // namespace deepinfer::text
