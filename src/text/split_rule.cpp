#include "text/split_rule.h"

#include "base/check.h"
#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace deepinfer::text {
namespace {

constexpr size_t kPiecesPerCall = 1024;

struct Character {
  uint8_t bits;     // class, see unicode_classes.h
  uint32_t length;  // bytes
};

// A text with its class table. Positions are byte offsets at starts of characters.
struct Text {
  const uint8_t* classes;
  const uint8_t* bytes;
  size_t end;

  Character at(size_t i) const {
    const uint8_t b = bytes[i];
    if (b < 0x80) return {classes[b], 1};
    const CodePoint c = read_valid_utf8(bytes + i);
    return {classes[c.value], c.length};
  }
  // Past the characters from i on whose class satisfies `belongs`.
  template <class Predicate>
  size_t skip(size_t i, Predicate belongs) const {
    while (i < end) {
      const Character c = at(i);
      if (!belongs(c.bits)) break;
      i += c.length;
    }
    return i;
  }
  bool is(size_t i, uint8_t mask) const { return i < end && (at(i).bits & mask) != 0; }
};

// Where a regular expression applied to pieces of an earlier split sees the end of its text.
template <uint8_t kBarrier>
bool at_end(const Text& t, size_t i) {
  return i == t.end || (kBarrier != 0 && (t.at(i).bits & kBarrier) != 0);
}

// \s*[\r\n]+ (if kNewlines) | \s+(?!\S) | \s+ at the white space i: up to the last CR or LF of the
// run; else the run without its last character when text follows, and that character alone.
template <bool kNewlines, uint8_t kBarrier>
size_t end_of_space(const Text& t, size_t i) {
  size_t j = i;
  size_t last = i;  // start of the run's last character
  size_t after_newline = i;
  while (j < t.end) {
    const Character c = t.at(j);
    if ((c.bits & kSpace) == 0) break;
    last = j;
    j += c.length;
    if (c.bits & kNewline) after_newline = j;
  }
  if (kNewlines && after_newline > i) return after_newline;
  return at_end<kBarrier>(t, j) || last == i ? j : last;
}

constexpr auto kIsLetter = [](uint8_t bits) { return (bits & kLetter) != 0; };
constexpr auto kIsNumber = [](uint8_t bits) { return (bits & kNumber) != 0; };
constexpr auto kIsNewline = [](uint8_t bits) { return (bits & kNewline) != 0; };
constexpr auto kIsOther = [](uint8_t bits) {  // [^\s\p{L}\p{N}]
  return (bits & (kSpace | kLetter | kNumber)) == 0;
};

// 's|'t|'re|'ve|'m|'ll|'d after the apostrophe at i; 0 when none matches. Without case (?i: the
// long s, U+017F, counts as an s, as simple case folding has it.
template <bool kAnyCase>
size_t end_of_contraction(const Text& t, size_t i) {
  const auto letter = [&](size_t at) -> uint8_t {
    if (at >= t.end) return 0;
    const uint8_t b = t.bytes[at];
    return kAnyCase && b >= 'A' && b <= 'Z' ? static_cast<uint8_t>(b | 0x20) : b;
  };
  const uint8_t a = letter(i + 1);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
  const uint8_t b = letter(i + 2);
  if ((a == 'r' || a == 'v') && b == 'e') return i + 3;
  if (a == 'l' && b == 'l') return i + 3;
  if (kAnyCase && a == 0xC5 && b == 0xBF) return i + 3;
  return 0;
}

// GPT-2: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// SmolLM: each \p{N} alone first, which ends the text that this expression sees.
template <uint8_t kBarrier>
size_t next_gpt2(const Text& t, size_t i) {
  const Character first = t.at(i);
  if (kBarrier != 0 && (first.bits & kBarrier)) return i + first.length;
  if (t.bytes[i] == '\'') {
    if (const size_t end = end_of_contraction<false>(t, i)) return end;
  }
  size_t word = i;
  uint8_t bits = first.bits;
  if (t.bytes[i] == ' ' && !at_end<kBarrier>(t, i + 1)) bits = t.at(word = i + 1).bits;
  if (bits & kLetter) return t.skip(word, kIsLetter);
  if (bits & kNumber) return t.skip(word, kIsNumber);
  if (kIsOther(bits)) return t.skip(word, kIsOther);
  return end_of_space<false, kBarrier>(t, i);
}

// Llama 3: (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
// ?[^\s\p{L}\p{N}]+[\r\n]*
// |\s*[\r\n]+|\s+(?!\S)|\s+     Qwen2: the same with \p{N} alone.
template <size_t kDigits>
size_t next_llama3(const Text& t, size_t i) {
  const Character first = t.at(i);
  if (first.bits & kLetter) return t.skip(i, kIsLetter);
  if (first.bits & kNumber) {
    size_t end = i + first.length;
    for (size_t n = 1; n < kDigits && t.is(end, kNumber); ++n) end += t.at(end).length;
    return end;
  }
  if (t.bytes[i] == '\'') {
    if (const size_t end = end_of_contraction<true>(t, i)) return end;
  }
  if (!(first.bits & kNewline) && t.is(i + first.length, kLetter)) {
    return t.skip(i + first.length, kIsLetter);
  }
  const size_t mark = t.bytes[i] == ' ' ? i + 1 : i;
  if (mark < t.end && kIsOther(t.at(mark).bits)) {
    return t.skip(t.skip(mark, kIsOther), kIsNewline);
  }
  return end_of_space<true, 0>(t, i);
}

bool is_ascii_letter(uint8_t b) { return static_cast<uint8_t>((b | 0x20) - 'a') < 26; }

// The third DeepSeek expression sees what the first two left one by one: runs of Han and kana
// (which hold marks and punctuation too, U+3099, U+30FB), and the text between those and the
// numbers. Numbers it leaves alone.
template <bool kHan>
struct DeepSeekText {
  static bool holds(uint8_t bits) {
    return kHan ? (bits & kHanOrKana) != 0 : (bits & (kNumber | kHanOrKana)) == 0;
  }
  static bool letter(uint8_t bits) { return (bits & kLetterOrMark) != 0 && holds(bits); }
  static bool newline(uint8_t bits) { return (bits & kNewline) != 0 && holds(bits); }
  static bool mark(uint8_t bits) { return (bits & kPunctuationOrSymbol) != 0 && holds(bits); }
};

// That expression at i:
//   [!-/:-@[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*
//   |\s*[\r\n]+|\s+(?!\S)|\s+
// Returns i when nothing matches there.
template <bool kHan>
size_t end_of_deepseek_match(const Text& t, size_t i) {
  using Seen = DeepSeekText<kHan>;
  const Character first = t.at(i);
  const size_t next = i + first.length;
  if (first.bits & kLetterOrMark) return t.skip(next, Seen::letter);
  if (first.bits & kPunctuationOrSymbol) {
    if (t.bytes[i] < 0x80 && next < t.end && is_ascii_letter(t.bytes[next])) {
      size_t end = next + 1;
      while (end < t.end && is_ascii_letter(t.bytes[end])) ++end;
      return end;
    }
    return t.skip(t.skip(next, Seen::mark), Seen::newline);
  }
  if (next < t.end) {
    const uint8_t bits = t.at(next).bits;
    if (!(first.bits & kNewline) && Seen::letter(bits)) return t.skip(next, Seen::letter);
    if (t.bytes[i] == ' ' && Seen::mark(bits)) {
      return t.skip(t.skip(next, Seen::mark), Seen::newline);
    }
  }
  if (first.bits & kSpace) return end_of_space < true, kNumber | kHanOrKana > (t, i);
  return i;
}

// The match at i, or the characters from i on that nothing matches: they stay together.
template <bool kHan>
size_t next_in_deepseek_text(const Text& t, size_t i) {
  const size_t match = end_of_deepseek_match<kHan>(t, i);
  if (match > i) return match;
  size_t end = i + t.at(i).length;
  while (end < t.end && DeepSeekText<kHan>::holds(t.at(end).bits) &&
         end_of_deepseek_match<kHan>(t, end) == end) {
    end += t.at(end).length;
  }
  return end;
}

// DeepSeek V3 and V4: \p{N}{1,3}, then [一-龥\x{3040}-ゟ゠-ヿ]+ on what is left, then the
// expression above on every piece so far.
size_t next_deepseek(const Text& t, size_t i) {
  const Character first = t.at(i);
  if (first.bits & kHanOrKana) return next_in_deepseek_text<true>(t, i);
  if (!(first.bits & kNumber)) return next_in_deepseek_text<false>(t, i);
  size_t end = i + first.length;
  for (size_t n = 1; n < 3 && t.is(end, kNumber); ++n) end += t.at(end).length;
  return end;
}

template <class Next>
size_t collect(const Text& t, size_t i, std::vector<uint32_t>& ends, Next next) {
  for (size_t n = 0; n < kPiecesPerCall && i < t.end; ++n) {
    i = next(t, i);
    ends.push_back(static_cast<uint32_t>(i));
  }
  return i;
}

}  // namespace

size_t split_some(SplitRule rule, std::string_view text, size_t begin,
                  std::vector<uint32_t>& ends) {
  const Text t{unicode_classes(), reinterpret_cast<const uint8_t*>(text.data()), text.size()};
  const auto run = [&](auto next) { return collect(t, begin, ends, next); };
  switch (rule) {
    case SplitRule::gpt2:
      return run([](const Text& x, size_t i) { return next_gpt2<0>(x, i); });
    case SplitRule::smollm:
      return run([](const Text& x, size_t i) { return next_gpt2<kNumber>(x, i); });
    case SplitRule::llama3:
      return run([](const Text& x, size_t i) { return next_llama3<3>(x, i); });
    case SplitRule::qwen2:
      return run([](const Text& x, size_t i) { return next_llama3<1>(x, i); });
    case SplitRule::deepseek_v3:
      return run([](const Text& x, size_t i) { return next_deepseek(x, i); });
  }
  check(false, "split rule");
  return begin;
}

}  // namespace deepinfer::text
