#include "text/vocabulary.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>

#include <fmt/format.h>

#include "base/check.h"

namespace deepinfer::text {
namespace {

constexpr size_t kMaxArenaBytes = size_t{1} << 30;
constexpr size_t kAlphabetEnd = 256 + 68;  // code points of the alphabet are below it

// [kAlphabetEnd] byte of each character of the alphabet, or -1.
constexpr std::array<int16_t, kAlphabetEnd> make_alphabet() {
  std::array<int16_t, kAlphabetEnd> byte_of{};
  for (auto& b : byte_of) b = -1;
  size_t next = 256;
  for (size_t b = 0; b < 256; ++b) {
    const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    byte_of[itself ? b : next++] = static_cast<int16_t>(b);
  }
  return byte_of;
}
constexpr std::array<int16_t, kAlphabetEnd> kByteOf = make_alphabet();

}  // namespace

bool append_alphabet_bytes(std::string_view spelled, std::string& bytes) {
  const size_t before = bytes.size();
  for (size_t i = 0; i < spelled.size(); ++i) {
    uint32_t c = static_cast<uint8_t>(spelled[i]);
    if (c >= 0xC2 && c <= 0xC5 && i + 1 < spelled.size()) {
      c = (c & 0x1F) << 6 | (static_cast<uint8_t>(spelled[++i]) & 0x3F);
    } else if (c >= 0x80) {
      c = kAlphabetEnd;
    }
    if (c >= kAlphabetEnd || kByteOf[c] < 0) {
      bytes.resize(before);
      return false;
    }
    bytes += static_cast<char>(kByteOf[c]);
  }
  return true;
}

Vocabulary::Vocabulary(size_t capacity, size_t base_count)
    : spans_(capacity),
      flags_(capacity),
      slots_(std::bit_ceil(2 * base_count + 1)),
      base_left_(base_count) {}

std::optional<std::string> Vocabulary::refuse(int64_t id, size_t length) const {
  if (id < 0 || static_cast<uint64_t>(id) >= spans_.size()) {
    return fmt::format("id {} is outside of 0..{}", id, static_cast<int64_t>(spans_.size()) - 1);
  }
  if (arena_.size() + length > kMaxArenaBytes) {
    return fmt::format("tokens take more than {} bytes", kMaxArenaBytes);
  }
  return std::nullopt;
}

void Vocabulary::store(int64_t id, uint8_t flags, size_t offset) {
  const auto at = static_cast<size_t>(id);
  spans_[at] = {static_cast<uint32_t>(offset), static_cast<uint32_t>(arena_.size() - offset)};
  flags_[at] = flags;
  size_ = std::max(size_, at + 1);
}

std::optional<std::string> Vocabulary::add_base(int64_t id, std::string_view spelled) {
  if (auto wrong = refuse(id, spelled.size())) return wrong;
  if (flags_[static_cast<size_t>(id)] & kPresent) {
    return fmt::format("id {} is given to \"{}\" and to \"{}\"", id,
                       bytes(static_cast<int32_t>(id)), spelled);
  }
  const size_t offset = arena_.size();
  const bool raw = !append_alphabet_bytes(spelled, arena_);
  if (raw) arena_ += spelled;
  store(id, static_cast<uint8_t>(kPresent | (raw ? kRaw : 0)), offset);

  const std::string_view key = bytes(static_cast<int32_t>(id));
  const uint64_t hash = XXH3_64bits(key.data(), key.size());
  const auto tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  for (; slots_[at].id_plus_one != 0; at = (at + 1) & mask) {
    const auto other = static_cast<int32_t>(slots_[at].id_plus_one - 1);
    if (slots_[at].tag == tag && bytes(other) == key && ((flags(other) & kRaw) != 0) == raw) {
      return fmt::format("\"{}\" has the ids {} and {}", spelled, other, id);
    }
  }
  check(base_left_ > 0, "more base entries than announced");
  --base_left_;
  slots_[at] = {static_cast<uint32_t>(id) + 1, tag};
  return std::nullopt;
}

std::optional<std::string> Vocabulary::add_added(int64_t id, std::string_view spelling,
                                                 bool special) {
  if (auto wrong = refuse(id, spelling.size())) return wrong;
  const auto at = static_cast<size_t>(id);
  if (flags_[at] & kPresent) {
    const std::string_view known = bytes(static_cast<int32_t>(id));
    if (known != spelling) {
      return fmt::format("id {} is given to \"{}\" and to \"{}\"", id, known, spelling);
    }
    flags_[at] |= static_cast<uint8_t>(kAdded | (special ? kSpecial : 0));
    return std::nullopt;
  }
  const size_t offset = arena_.size();
  arena_ += spelling;
  store(id, static_cast<uint8_t>(kPresent | kAdded | (special ? kSpecial : 0)), offset);
  return std::nullopt;
}

std::optional<int32_t> Vocabulary::find(std::string_view key, uint8_t raw) const {
  const uint64_t hash = XXH3_64bits(key.data(), key.size());
  const auto tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask; slots_[at].id_plus_one != 0; at = (at + 1) & mask) {
    if (slots_[at].tag != tag) continue;
    const auto id = static_cast<int32_t>(slots_[at].id_plus_one - 1);
    if (bytes(id) == key && (flags(id) & kRaw) == raw) return id;
  }
  return std::nullopt;
}

std::optional<int32_t> Vocabulary::find_base(std::string_view key) const { return find(key, 0); }

std::optional<int32_t> Vocabulary::find_any_base(std::string_view key) const {
  const auto id = find(key, 0);
  return id ? id : find(key, kRaw);
}

}  // namespace deepinfer::text
