#include "recipe/custom_input.h"

#include <cstdint>
#include <utility>

#include "text/utf8.h"

namespace deepinfer::recipe {
namespace {

constexpr std::string_view kKey = "{\"input\":";
constexpr std::string_view kBlanks = " \t\r\n";

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// 0: there is no such escape.
char simple_escape(char c) {
  constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
  const size_t at = kNames.find(c);
  return at == std::string_view::npos ? '\0' : kValues[at];
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

// The text of the escape at the start, which takes `length` bytes; 0: it is not complete.
struct Escape {
  std::string text;
  size_t length;
};

Escape read_escape(std::string_view text) {
  if (text.size() < 2) return {{}, 0};
  if (text[1] != 'u') {
    const char simple = simple_escape(text[1]);
    return {simple != '\0' ? std::string(1, simple) : std::string(text.substr(0, 2)), 2};
  }
  if (text.size() < 6) return {{}, 0};
  const int32_t first = code_unit(text);
  if (first < 0) return {std::string(text.substr(0, 2)), 2};
  Escape escape{{}, 6};
  if (first < 0xD800 || first > 0xDFFF) {
    text::append_utf8(static_cast<uint32_t>(first), escape.text);
    return escape;
  }
  escape.text = text.substr(0, 6);
  if (first > 0xDBFF) return escape;
  if (text.size() < 12 && (text.size() < 7 || text[6] == '\\') &&
      (text.size() < 8 || text[7] == 'u'))
    return {{}, 0};
  const int32_t second = code_unit(text.substr(6));
  if (second < 0) return escape;
  if (second < 0xDC00 || second > 0xDFFF) return {std::string(text.substr(0, 12)), 12};
  escape = {{}, 12};
  text::append_utf8(0x10000u + (static_cast<uint32_t>(first - 0xD800) << 10) +
                        static_cast<uint32_t>(second - 0xDC00),
                    escape.text);
  return escape;
}

// Bytes up to and with the quote that opens the string; 0: not all of them are there, or they
// cannot come any more (npos).
size_t opening_length(std::string_view text) {
  if (text.size() < kKey.size()) return kKey.starts_with(text) ? 0 : std::string_view::npos;
  if (!text.starts_with(kKey)) return std::string_view::npos;
  const size_t at = text.find_first_not_of(kBlanks, kKey.size());
  if (at == std::string_view::npos) return 0;
  return text[at] == '"' ? at + 1 : std::string_view::npos;
}

}  // namespace

std::string CustomInput::push(std::string_view arguments) {
  if (state_ == State::raw) return std::string(arguments);
  if (state_ == State::behind) return {};
  held_ += arguments;
  if (state_ == State::opening) {
    const size_t length = opening_length(held_);
    if (length == 0) return {};
    if (length == std::string_view::npos) {
      state_ = State::raw;
      return std::exchange(held_, {});
    }
    state_ = State::inside;
    held_.erase(0, length);
  }
  return unescaped();
}

std::string CustomInput::finish() { return std::exchange(held_, {}); }

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
    const Escape escape = read_escape(std::string_view(held_).substr(at));
    if (escape.length == 0) break;
    out += escape.text;
    at += escape.length;
  }
  held_.erase(0, at);
  return out;
}

}  // namespace deepinfer::recipe
