#include "text/utf8.h"

#include <simdjson.h>

namespace deepinfer::text {
namespace {

enum class Form { complete, invalid, cut };

struct Sequence {
  Form form;
  size_t length;  // of the character, the invalid part, or what is there of a cut character
};

// Unicode 3.9, table 3-7: the second byte has a narrower range after E0, ED, F0 and F4.
Sequence read_sequence(const uint8_t* p, size_t size) {
  const uint8_t b = p[0];
  if (b < 0x80) return {Form::complete, 1};
  if (b < 0xC2 || b > 0xF4) return {Form::invalid, 1};
  const size_t length = b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
  uint8_t low = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
  uint8_t high = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == size) return {Form::cut, i};
    if (p[i] < low || p[i] > high) return {Form::invalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Form::complete, length};
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return text.size();
  const auto* p = reinterpret_cast<const uint8_t*>(text.data());
  size_t at = 0;
  while (at < text.size()) {
    const Sequence next = read_sequence(p + at, text.size() - at);
    if (next.form != Form::complete) return at;
    at += next.length;
  }
  return at;
}

void append_utf8(uint32_t c, std::string& out) {
  const auto tail = [c](int shift) { return static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += tail(6);
    out += tail(0);
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += tail(12);
    out += tail(6);
    out += tail(0);
  }
}

size_t append_replacing_invalid(std::string_view bytes, std::string& out) {
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t at = 0;
  size_t copied = 0;  // bytes before it are in out
  while (at < bytes.size()) {
    const Sequence next = read_sequence(p + at, bytes.size() - at);
    if (next.form == Form::cut) break;
    if (next.form == Form::invalid) {
      out.append(bytes, copied, at - copied);
      out += kReplacement;
      copied = at + next.length;
    }
    at += next.length;
  }
  out.append(bytes, copied, at - copied);
  return at;
}

}  // namespace deepinfer::text
