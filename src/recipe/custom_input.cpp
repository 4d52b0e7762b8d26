#include "recipe/custom_input.h"

#include <algorithm>
#include <cstdint>

#include "text/utf8.h"

namespace deepinfer::recipe {
namespace {

constexpr std::string_view kOpening = "{\"input\": \"";

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

char simple_escape(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    default:
      return c;
  }
}

// The value of \uXXXX at the start of the text; -1 when it is none.
int32_t code_unit(std::string_view text) {
  int32_t value = 0;
  if (text.size() < 6 || text[0] != '\\' || text[1] != 'u') return -1;
  for (size_t i = 2; i < 6; ++i) {
    const int digit = hex_digit(text[i]);
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

// The value of \uXXXX or of a pair of surrogates at the start of the text.
struct Escape {
  uint32_t code;
  size_t length;  // 0: not complete
};

Escape unicode_escape(std::string_view text) {
  if (text.size() < 6) return {0, 0};
  const int32_t first = code_unit(text);
  if (first < 0) return {0xFFFD, 2};
  if (first < 0xD800 || first > 0xDFFF) return {static_cast<uint32_t>(first), 6};
  if (first > 0xDBFF) return {0xFFFD, 6};
  if (text.size() < 12 && std::string_view("\\u").starts_with(text.substr(6, 2))) return {0, 0};
  const int32_t second = code_unit(text.substr(6));
  if (second < 0xDC00 || second > 0xDFFF) return {0xFFFD, 6};
  return {0x10000u + (static_cast<uint32_t>(first - 0xD800) << 10) +
              static_cast<uint32_t>(second - 0xDC00),
          12};
}

}  // namespace

std::string CustomInput::push(std::string_view arguments) {
  if (state_ == State::raw) return std::string(arguments);
  if (state_ == State::behind) return {};
  held_ += arguments;
  if (state_ == State::opening) {
    if (held_.size() < kOpening.size() && kOpening.starts_with(held_)) return {};
    if (!held_.starts_with(kOpening)) {
      state_ = State::raw;
      return std::move(held_);
    }
    state_ = State::inside;
    held_.erase(0, kOpening.size());
  }
  return unescaped();
}

std::string CustomInput::unescaped() {
  std::string out;
  size_t at = 0;
  while (at < held_.size()) {
    const char c = held_[at];
    if (c == '"') {
      state_ = State::behind;
      at = held_.size();
      break;
    }
    if (c != '\\') {
      out += c;
      ++at;
      continue;
    }
    if (at + 1 == held_.size()) break;
    if (held_[at + 1] != 'u') {
      out += simple_escape(held_[at + 1]);
      at += 2;
      continue;
    }
    const Escape escape = unicode_escape(std::string_view(held_).substr(at));
    if (escape.length == 0) break;
    text::append_utf8(escape.code, out);
    at += escape.length;
  }
  held_.erase(0, at);
  return out;
}

}  // namespace deepinfer::recipe
