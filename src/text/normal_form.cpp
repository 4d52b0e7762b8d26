#include "text/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace deepinfer::text {
namespace {

constexpr uint32_t kFirstChange = 0x300;  // no character below it changes or composes backwards
constexpr int kMaxDecomposition = 4;      // code points of a canonical decomposition

bool is_surrogate(uint32_t c) { return c >= 0xD800 && c <= 0xDFFF; }

// Canonical decomposition of one code point; returns the length.
int decompose(uint32_t c, utf8proc_int32_t* out) {
  int boundary = 0;
  const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), out, kMaxDecomposition,
                                         UTF8PROC_DECOMPOSE, &boundary);
  check(n > 0 && n <= kMaxDecomposition, "canonical decomposition of a code point");
  return static_cast<int>(n);
}

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// [kCodePoints] code points that may change: those with a combining class, those that NFC replaces,
// and those that may join the character before them (second parts of decompositions, Hangul vowels
// and tails).
std::vector<bool> find_unstable() {
  std::vector<bool> unstable(kCodePoints);
  for (uint32_t c = kFirstChange; c < kCodePoints; ++c) {
    if (combining_class(static_cast<utf8proc_int32_t>(c)) != 0) unstable[c] = true;
  }
  for (uint32_t c = 0xC0; c < kCodePoints; ++c) {
    if (is_surrogate(c) || (c >= 0xAC00 && c <= 0xD7A3)) continue;
    utf8proc_int32_t parts[kMaxDecomposition];
    const int count = decompose(c, parts);
    if (count == 1 && parts[0] == static_cast<utf8proc_int32_t>(c)) continue;
    for (int i = 1; i < count; ++i) unstable[static_cast<uint32_t>(parts[i])] = true;
    const auto composed = utf8proc_normalize_utf32(
        parts, count, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (composed != 1 || parts[0] != static_cast<utf8proc_int32_t>(c)) unstable[c] = true;
  }
  for (uint32_t c = 0x1161; c <= 0x1175; ++c) unstable[c] = true;
  for (uint32_t c = 0x11A8; c <= 0x11C2; ++c) unstable[c] = true;
  return unstable;
}

// Canonical order: runs of combining marks sorted by class, equal classes as they came. utf8proc
// would do it by exchanging neighbours, which is quadratic.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  std::vector<uint64_t> keys;  // class << 53 | place in the run << 21 | code point
  for (size_t i = 0; i < points.size();) {
    keys.clear();
    size_t end = i;
    for (; end < points.size(); ++end) {
      const auto rank = static_cast<uint64_t>(combining_class(points[end]));
      if (rank == 0) break;
      keys.push_back(rank << 53 | uint64_t{end - i} << 21 | static_cast<uint64_t>(points[end]));
    }
    if (keys.size() > 1) std::sort(keys.begin(), keys.end());
    for (size_t k = 0; k < keys.size(); ++k) {
      points[i + k] = static_cast<utf8proc_int32_t>(keys[k] & ((1u << 21) - 1));
    }
    i = end + 1;
  }
}

// Appends the NFC of a part of a text that starts with a stable character and ends before one.
void append_composed(std::string_view part, std::string& out) {
  std::vector<utf8proc_int32_t> points;
  points.reserve(part.size());
  const auto* bytes = reinterpret_cast<const uint8_t*>(part.data());
  for (size_t i = 0; i < part.size();) {
    const CodePoint c = read_valid_utf8(bytes + i);
    i += c.length;
    const size_t at = points.size();
    points.resize(at + kMaxDecomposition);
    points.resize(at + static_cast<size_t>(decompose(c.value, points.data() + at)));
  }
  order_marks(points);
  const auto count =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  check(count >= 0, "composition of a decomposed text");
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(static_cast<uint32_t>(points[static_cast<size_t>(i)]), out);
  }
}

// Positions of characters that may change under NFC.
class UnstableScan {
 public:
  explicit UnstableScan(std::string_view text) : text_(text) {}

  // The first such character at or after `at`; text.size() when there is none. `before` becomes the
  // start of the character before it, or stays.
  size_t find(size_t at, size_t& before) const {
    for (; at < text_.size() && !is_unstable(at); at += length(at)) before = at;
    return at;
  }
  // The first character at or after `at` that cannot change.
  size_t find_stable(size_t at) const {
    while (at < text_.size() && is_unstable(at)) at += length(at);
    return at;
  }

 private:
  const uint8_t* byte(size_t at) const {
    return reinterpret_cast<const uint8_t*>(text_.data()) + at;
  }
  size_t length(size_t at) const { return *byte(at) < 0x80 ? 1 : read_valid_utf8(byte(at)).length; }
  bool is_unstable(size_t at) const {
    return *byte(at) >= 0xCC && table()[read_valid_utf8(byte(at)).value];  // CC 80 is U+0300
  }
  static const std::vector<bool>& table() {
    static const std::vector<bool> unstable = find_unstable();
    return unstable;
  }

  std::string_view text_;
};

}  // namespace

bool is_surely_nfc(std::string_view text) {
  size_t before = 0;
  return UnstableScan(text).find(0, before) == text.size();
}

std::string to_nfc(std::string_view text) {
  const UnstableScan scan(text);
  std::string out;
  out.reserve(text.size());
  size_t done = 0;  // bytes of text that are in out
  while (true) {
    // A character that may change can join the stable one before it, and none further back.
    size_t begin = done;
    const size_t unstable = scan.find(done, begin);
    if (unstable == text.size()) break;
    const size_t end = scan.find_stable(unstable);
    out.append(text, done, begin - done);
    append_composed(text.substr(begin, end - begin), out);
    done = end;
  }
  out.append(text, done);
  return out;
}

}  // namespace deepinfer::text
