#include "text/token_classes.h"

#include <utf8proc.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <unordered_map>

#include "base/check.h"
#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace deepinfer::text {
namespace {

bool is_mark(utf8proc_int32_t c) {
  const utf8proc_category_t category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

bool is_plain_space(uint32_t c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// NFKD, without marks, lower case.
std::u32string decomposed(std::string_view text) {
  utf8proc_uint8_t* bytes = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(text.size()), &bytes,
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPAT | UTF8PROC_DECOMPOSE));
  check(size >= 0, "decomposition of a valid text");
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(bytes, &std::free);
  std::u32string out;
  for (utf8proc_ssize_t i = 0; i < size;) {
    const CodePoint c = read_valid_utf8(bytes + i);
    i += c.length;
    const auto value = static_cast<utf8proc_int32_t>(c.value);
    if (!is_mark(value)) out.push_back(static_cast<char32_t>(utf8proc_tolower(value)));
  }
  return out;
}

// The byte alphabet of byte-level vocabularies: printable bytes stand for themselves, the others
// are numbered from U+0100 on.
std::array<uint32_t, 256> byte_alphabet() {
  std::array<uint32_t, 256> letters{};
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    letters[byte] = prints ? byte : next++;
  }
  return letters;
}

std::string raw_spelling(const Tokenizer& tokenizer, int32_t id) {
  static const std::array<uint32_t, 256> letters = byte_alphabet();
  const std::string_view bytes = tokenizer.token_bytes(id);
  if (tokenizer.is_added(id)) return std::string(bytes);
  std::string out;
  for (char byte : bytes) append_utf8(letters[static_cast<uint8_t>(byte)], out);
  return out;
}

}  // namespace

std::string folded(std::string_view text) {
  std::u32string spaced;
  bool in_space = false;
  for (char32_t c : decomposed(text)) {
    const bool space = is_plain_space(c);
    if (!space) spaced.push_back(c);
    if (space && !in_space) spaced.push_back(' ');
    in_space = space;
  }
  if (spaced == U" ") return " ";
  const auto is_space = [](char32_t c) { return (unicode_classes()[c] & kSpace) != 0; };
  size_t first = 0, end = spaced.size();
  while (first < end && is_space(spaced[first])) ++first;
  while (end > first && is_space(spaced[end - 1])) --end;
  std::string out;
  for (size_t i = first; i < end; ++i) {
    append_utf8(spaced[i] == 0xE000 ? U' ' : spaced[i], out);
  }
  return out;
}

std::vector<int32_t> token_classes(const Tokenizer& tokenizer, size_t vocab) {
  std::vector<int32_t> classes(vocab, 0);
  std::unordered_map<std::string, int32_t> seen;
  const size_t count = std::min(vocab, tokenizer.vocab_size());
  for (size_t i = 0; i < count; ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string text = tokenizer.decode({&id, 1}, SkipSpecial::no);
    std::string key;
    if (text.find(kReplacement) != std::string::npos) {
      key = raw_spelling(tokenizer, id);
    } else {
      key = folded(text);
      if (key.empty()) key = text;
    }
    classes[i] = seen.try_emplace(std::move(key), static_cast<int32_t>(seen.size())).first->second;
  }
  return classes;
}

}  // namespace deepinfer::text
