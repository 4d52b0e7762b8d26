#pragma once

// Vocabulary: the tokens by id and by bytes; and the byte alphabet, in which files of byte-level
// BPE spell the 256 bytes as printable characters (33-126, 161-172, 174-255 as themselves, the
// others in order from U+0100).
//
// Threads: reading from any.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deepinfer::text {

// Appends the bytes that a text in the byte alphabet spells; false, with `bytes` as it was, when a
// character is not of the alphabet. `spelled` may be any bytes.
bool append_alphabet_bytes(std::string_view spelled, std::string& bytes);

class Vocabulary {
 public:
  // Ids below capacity may be added, and at most base_count base entries; all that is allocated
  // for.
  Vocabulary(size_t capacity, size_t base_count);
  Vocabulary() : Vocabulary(0, 0) {}

  // A base entry as the file spells it. Spellings outside of the byte alphabet stand for their own
  // UTF-8. Fails (with the text of what is wrong) on an id that is taken or out of range, and on a
  // spelling that is taken.
  std::optional<std::string> add_base(int64_t id, std::string_view spelled);
  // An added token: its bytes are its spelling. Replaces a base entry of the same id.
  std::optional<std::string> add_added(int64_t id, std::string_view spelling, bool special);
  void mark_special(int32_t id) { flags_[static_cast<size_t>(id)] |= kSpecial; }

  size_t size() const { return size_; }  // greatest id + 1
  bool has(int32_t id) const { return flags(id) & kPresent; }
  bool is_added(int32_t id) const { return flags(id) & kAdded; }
  bool is_special(int32_t id) const { return flags(id) & kSpecial; }
  std::string_view bytes(int32_t id) const {
    if (!has(id)) return {};
    const Span span = spans_[static_cast<size_t>(id)];
    return std::string_view(arena_).substr(span.offset, span.length);
  }

  // Base entries spelled in the byte alphabet: what merges make.
  std::optional<int32_t> find_base(std::string_view bytes) const;
  // Base entries of either kind.
  std::optional<int32_t> find_any_base(std::string_view bytes) const;

 private:
  static constexpr uint8_t kPresent = 1, kAdded = 2, kSpecial = 4, kRaw = 8;

  struct Span {
    uint32_t offset = 0;
    uint32_t length = 0;
  };
  struct Slot {
    uint32_t id_plus_one = 0;  // 0: empty
    uint32_t tag = 0;          // high half of the hash
  };

  uint8_t flags(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < size_ ? flags_[static_cast<size_t>(id)] : 0;
  }
  std::optional<std::string> refuse(int64_t id, size_t length) const;
  void store(int64_t id, uint8_t flags, size_t offset);
  std::optional<int32_t> find(std::string_view bytes, uint8_t raw) const;

  std::string arena_;           // bytes of all tokens
  std::vector<Span> spans_;     // [capacity]
  std::vector<uint8_t> flags_;  // [capacity]
  std::vector<Slot> slots_;     // power of two, at most half full: base entries by bytes
  size_t base_left_ = 0;        // base entries that may still be added
  size_t size_ = 0;
};

}  // namespace deepinfer::text
