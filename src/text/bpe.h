#pragma once

// Bpe: the merges of byte-level BPE inside one piece of text: join the adjacent pair with the
// lowest rank, leftmost first among equals, until no pair has a rank.
//
// Time per piece of n bytes: long pieces fall into parts that no merge joins; a part comes from the
// cache, or takes n^2 steps over a few cache lines when short, n log n with a heap over a linked
// list when long. Threads: a Bpe is read from any; a BpeScratch belongs to one call at a time.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace deepinfer::text {

struct Merge {
  int32_t left;
  int32_t right;
  int32_t result;
};

// Pieces of up to 32 bytes with the ids they gave, one cache line each; a new piece takes the place
// of an old one. The size is fixed: 2 MiB.
class PieceCache {
 public:
  static constexpr size_t kMaxPieceBytes = 32;
  static constexpr size_t kMaxIds = 7;

  struct Key {
    std::array<uint64_t, 4> words{};  // the bytes, zero behind them
    uint8_t length = 0;
  };
  struct alignas(64) Entry {
    std::array<uint64_t, 4> words{};
    std::array<int32_t, kMaxIds> ids{};
    uint8_t length = 0;  // 0: empty
    uint8_t count = 0;
  };

  PieceCache() : entries_(kEntries) {}

  // readable: bytes that may be read from the piece's start on, at least its size.
  static Key key_of(std::string_view piece, size_t readable);
  // The entry where the key is or would be kept.
  Entry& at(const Key& key);
  static bool holds(const Entry& entry, const Key& key) {
    return entry.length == key.length && entry.words == key.words;
  }

 private:
  static constexpr size_t kEntries = size_t{1} << 15;
  std::vector<Entry> entries_;
};

// Places in a piece that no merge can reach across, because no token that merges make holds the
// bytes around them. Long pieces (Chinese, Thai, emoji) fall into short parts there, exactly.
//
// A token over the place between bytes b and c has one byte or more on each side: it is bc itself,
// begins with bcd, ends in abc, or contains abcd. The four sets are kept as filters, which may say
// yes to what is not in them; that only leaves a part longer.
class MergeBorders {
 public:
  MergeBorders() = default;
  void add(std::string_view token);
  // Whether the bytes before `at` and from `at` on can be in one token; 0 < at < piece.size().
  bool may_join(std::string_view piece, size_t at) const;

 private:
  static constexpr size_t kFilterBits = size_t{1} << 21;

  static uint32_t slot(uint32_t bytes, uint32_t set) {
    return (bytes * 0x9E3779B1u + set * 0x85EBCA77u) >> 11;  // 32 - log2(kFilterBits)
  }
  bool test(uint32_t at) const { return filter_[at / 64] >> (at % 64) & 1; }
  void set(uint32_t at) { filter_[at / 64] |= uint64_t{1} << (at % 64); }

  std::vector<uint64_t> filter_ = std::vector<uint64_t>(kFilterBits / 64);
};

class BpeScratch {
 private:
  friend class Bpe;
  struct Symbol {
    int32_t id;
    uint32_t rank;   // of the pair of this symbol and the next; kNoRank: none
    int32_t result;  // of that pair
    uint32_t previous;
    uint32_t next;
  };
  std::vector<Symbol> symbols_;  // [bytes of the piece]
  std::string known_;            // a piece without the bytes that have no entry
  std::vector<uint64_t> heap_;   // rank << 32 | position, smallest first; stale ones stay
  PieceCache cache_;
};

class Bpe {
 public:
  static constexpr int32_t kNoId = -1;  // of a byte that has no entry: it is left out

  Bpe() = default;
  // merges in rank order, of this vocabulary; a pair that comes again takes the later rank, as the
  // reference engine does. byte_ids: the id of each byte. whole_pieces: a piece that is a
  // vocabulary entry is taken as it is (`ignore_merges`).
  Bpe(const std::vector<Merge>& merges, const std::array<int32_t, 256>& byte_ids,
      const Vocabulary& vocabulary, bool whole_pieces);

  // Appends the ids of the piece. readable: as in PieceCache::key_of. vocabulary: the one that the
  // merges are from.
  void encode(std::string_view piece, size_t readable, const Vocabulary& vocabulary,
              BpeScratch& scratch, std::vector<int32_t>& ids) const;

 private:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  static constexpr size_t kShortBytes = 48;
  static constexpr size_t kKeptSymbols = size_t{1} << 16;  // scratch above that is freed

  struct Pair {
    uint64_t key = kEmptyKey;  // left << 32 | right
    uint32_t rank = kNoRank;
    int32_t result = 0;
  };
  static constexpr uint64_t kEmptyKey = UINT64_MAX;

  size_t slot_of(uint64_t key) const { return (key * 0x9E3779B97F4A7C15u) >> shift_; }
  const Pair& find(int32_t left, int32_t right) const;
  void encode_known(std::string_view piece, size_t readable, BpeScratch& scratch,
                    std::vector<int32_t>& ids) const;
  void encode_part(std::string_view part, size_t readable, BpeScratch& scratch,
                   std::vector<int32_t>& ids) const;
  void merge_short(std::string_view piece, std::vector<int32_t>& ids) const;
  void merge_long(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  void update_pair(BpeScratch& scratch, uint32_t at) const;

  std::vector<Pair> pairs_{1};  // power of two, at most half full
  uint32_t shift_ = 63;         // 64 - log2(pairs_.size())
  std::array<int32_t, 256> byte_ids_{};
  MergeBorders borders_;
  bool whole_pieces_ = false;
  bool misses_bytes_ = false;  // some byte_ids_ are kNoId
};

}  // namespace deepinfer::text
