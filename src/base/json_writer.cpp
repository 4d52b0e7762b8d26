#include "base/json_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "base/check.h"

namespace deepinfer {
namespace {

// Length of the UTF-8 sequence at `at`, 0 when it is malformed (overlong, surrogate, cut short).
size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const auto trails = [&](size_t i, unsigned low, unsigned high) {
    return at + i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return trails(1, 0x80, 0xbf) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const unsigned low = lead == 0xe0 ? 0xa0 : 0x80;
    const unsigned high = lead == 0xed ? 0x9f : 0xbf;
    return trails(1, low, high) && trails(2, 0x80, 0xbf) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const unsigned low = lead == 0xf0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xf4 ? 0x8f : 0xbf;
    return trails(1, low, high) && trails(2, 0x80, 0xbf) && trails(3, 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

void append_escaped(std::string& out, unsigned char byte) {
  switch (byte) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\b':
      out += "\\b";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", byte);
  }
}

// "-0" would be read as an integer, which has no negative zero.
template <class Real>
void append_real(std::string& out, Real number) {
  fmt::format_to(std::back_inserter(out), "{}", number);
  if (number == 0 && std::signbit(number)) out += ".0";
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  size_t plain = 0;  // start of the stretch that is copied as it is
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool escape = byte < 0x20 || byte == '"' || byte == '\\';
    const size_t length = escape ? 0 : utf8_length(text, at);
    if (length > 0) {
      at += length;
      continue;
    }
    out.append(text, plain, at - plain);
    if (escape) {
      append_escaped(out, byte);
    } else {
      out += "\xef\xbf\xbd";
    }
    plain = ++at;
  }
  out.append(text, plain, text.size() - plain);
  out += '"';
}

void JsonWriter::before_value() {
  if (levels_.empty()) {
    check(!written_, "JSON: two values at the top");
  } else if (levels_.back().close == '}') {
    check(after_key_, "JSON: a value in an object needs a key");
  } else {
    if (!levels_.back().first) out_ += ',';
    levels_.back().first = false;
  }
  after_key_ = false;
  written_ = true;
}

void JsonWriter::begin(char open, char close) {
  before_value();
  out_ += open;
  levels_.push_back({close});
}

void JsonWriter::end(char close) {
  check(!levels_.empty() && levels_.back().close == close && !after_key_,
        "JSON: an end without its begin");
  levels_.pop_back();
  out_ += close;
}

void JsonWriter::begin_object() { begin('{', '}'); }
void JsonWriter::end_object() { end('}'); }
void JsonWriter::begin_array() { begin('[', ']'); }
void JsonWriter::end_array() { end(']'); }

void JsonWriter::key(std::string_view name) {
  check(!levels_.empty() && levels_.back().close == '}' && !after_key_,
        "JSON: a key outside of an object");
  if (!levels_.back().first) out_ += ',';
  levels_.back().first = false;
  append_json_string(out_, name);
  out_ += ':';
  after_key_ = true;
}

void JsonWriter::value(std::string_view text) {
  before_value();
  append_json_string(out_, text);
}

void JsonWriter::value(double number) {
  if (!std::isfinite(number)) return null();
  before_value();
  append_real(out_, number);
}

void JsonWriter::value(float number) {
  if (!std::isfinite(number)) return null();
  before_value();
  append_real(out_, number);
}

void JsonWriter::literal(std::string_view text) {
  before_value();
  out_ += text;
}

void JsonWriter::signed_value(int64_t number) {
  before_value();
  fmt::format_to(std::back_inserter(out_), "{}", number);
}

void JsonWriter::unsigned_value(uint64_t number) {
  before_value();
  fmt::format_to(std::back_inserter(out_), "{}", number);
}

}  // namespace deepinfer
