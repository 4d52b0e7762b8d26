#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "base/check.h"

namespace deepinfer::text {

PieceCache::Key PieceCache::key_of(std::string_view piece, size_t readable) {
  Key key;
  key.length = static_cast<uint8_t>(piece.size());
  if (readable < kMaxPieceBytes) {
    std::memcpy(key.words.data(), piece.data(), piece.size());
    return key;
  }
  std::memcpy(key.words.data(), piece.data(), kMaxPieceBytes);
  for (size_t i = 0; i < key.words.size(); ++i) {
    const size_t start = i * 8;  // of this word in the piece
    if (piece.size() <= start) {
      key.words[i] = 0;
    } else if (piece.size() < start + 8) {
      key.words[i] &= (uint64_t{1} << (piece.size() - start) * 8) - 1;
    }
  }
  return key;
}

PieceCache::Entry& PieceCache::at(const Key& key) {
  uint64_t hash = key.length;
  for (const uint64_t word : key.words) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return entries_[hash & (kEntries - 1)];
}

namespace {

// The sets of MergeBorders.
enum : uint32_t { kIs = 1, kBegins = 2, kEnds = 3, kContains = 4 };

uint32_t word_of(std::string_view bytes, size_t at, size_t count) {
  uint32_t word = 0;
  for (size_t i = 0; i < count; ++i) word = word << 8 | static_cast<uint8_t>(bytes[at + i]);
  return word;
}

}  // namespace

void MergeBorders::add(std::string_view token) {
  const size_t size = token.size();
  if (size == 2) set(slot(word_of(token, 0, 2), kIs));
  if (size >= 3) set(slot(word_of(token, 0, 3), kBegins));
  if (size >= 3) set(slot(word_of(token, size - 3, 3), kEnds));
  for (size_t i = 0; i + 4 <= size; ++i) set(slot(word_of(token, i, 4), kContains));
}

bool MergeBorders::may_join(std::string_view piece, size_t at) const {
  const bool two_before = at >= 2;
  const bool two_after = at + 2 <= piece.size();
  if (two_before && two_after && test(slot(word_of(piece, at - 2, 4), kContains))) return true;
  if (two_after && test(slot(word_of(piece, at - 1, 3), kBegins))) return true;
  if (two_before && test(slot(word_of(piece, at - 2, 3), kEnds))) return true;
  return test(slot(word_of(piece, at - 1, 2), kIs));
}

Bpe::Bpe(const std::vector<Merge>& merges, const std::array<int32_t, 256>& byte_ids,
         const Vocabulary& vocabulary, bool whole_pieces)
    : byte_ids_(byte_ids), whole_pieces_(whole_pieces) {
  misses_bytes_ = std::find(byte_ids.begin(), byte_ids.end(), kNoId) != byte_ids.end();
  const size_t size = std::bit_ceil(2 * merges.size() + 2);
  pairs_.assign(size, {});
  shift_ = 64 - static_cast<uint32_t>(std::countr_zero(size));
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    const uint64_t key =
        uint64_t{static_cast<uint32_t>(merge.left)} << 32 | static_cast<uint32_t>(merge.right);
    size_t at = slot_of(key);
    while (pairs_[at].key != kEmptyKey && pairs_[at].key != key) at = (at + 1) & (size - 1);
    pairs_[at] = {key, static_cast<uint32_t>(rank), merge.result};
    borders_.add(vocabulary.bytes(merge.result));
  }
}

const Bpe::Pair& Bpe::find(int32_t left, int32_t right) const {
  static constexpr Pair kNone{};
  const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  for (size_t at = slot_of(key);; at = (at + 1) & (pairs_.size() - 1)) {
    if (pairs_[at].key == key) return pairs_[at];
    if (pairs_[at].key == kEmptyKey) return kNone;
  }
}

void Bpe::encode(std::string_view piece, size_t readable, const Vocabulary& vocabulary,
                 BpeScratch& scratch, std::vector<int32_t>& ids) const {
  if (whole_pieces_) {
    const auto whole = vocabulary.find_base(piece);
    if (whole && !vocabulary.is_added(*whole)) {
      ids.push_back(*whole);
      return;
    }
  }
  if (misses_bytes_) {
    const auto missing = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] == kNoId; };
    if (std::any_of(piece.begin(), piece.end(), missing)) {
      scratch.known_.assign(piece);
      std::erase_if(scratch.known_, missing);
      encode_known(scratch.known_, scratch.known_.size(), scratch, ids);
      return;
    }
  }
  encode_known(piece, readable, scratch, ids);
}

void Bpe::encode_known(std::string_view piece, size_t readable, BpeScratch& scratch,
                       std::vector<int32_t>& ids) const {
  if (piece.empty()) return;
  if (piece.size() <= PieceCache::kMaxPieceBytes) {
    encode_part(piece, readable, scratch, ids);
    return;
  }
  size_t begin = 0;
  for (size_t at = 1; at < piece.size(); ++at) {
    if (borders_.may_join(piece, at)) continue;
    encode_part(piece.substr(begin, at - begin), readable - begin, scratch, ids);
    begin = at;
  }
  encode_part(piece.substr(begin), readable - begin, scratch, ids);
}

void Bpe::encode_part(std::string_view part, size_t readable, BpeScratch& scratch,
                      std::vector<int32_t>& ids) const {
  if (part.size() > PieceCache::kMaxPieceBytes) {
    if (part.size() <= kShortBytes)
      merge_short(part, ids);
    else
      merge_long(part, scratch, ids);
    return;
  }
  const PieceCache::Key key = PieceCache::key_of(part, readable);
  PieceCache::Entry& entry = scratch.cache_.at(key);
  if (PieceCache::holds(entry, key)) {
    ids.insert(ids.end(), entry.ids.data(), entry.ids.data() + entry.count);
    return;
  }
  const size_t before = ids.size();
  merge_short(part, ids);
  const size_t count = ids.size() - before;
  if (count > PieceCache::kMaxIds) return;
  entry.words = key.words;
  entry.length = key.length;
  entry.count = static_cast<uint8_t>(count);
  std::copy_n(ids.data() + before, count, entry.ids.data());
}

void Bpe::merge_short(std::string_view piece, std::vector<int32_t>& ids) const {
  int32_t symbols[kShortBytes];      // [count]
  uint32_t ranks[kShortBytes + 1];   // [count], of symbol i and the next
  int32_t results[kShortBytes + 1];  // [count], of the same pair
  size_t count = piece.size();
  for (size_t i = 0; i < count; ++i) symbols[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
  const auto update = [&](size_t i) {
    if (i + 1 >= count) {
      ranks[i] = kNoRank;
      return;
    }
    const Pair& pair = find(symbols[i], symbols[i + 1]);
    ranks[i] = pair.rank;
    results[i] = pair.result;
  };
  for (size_t i = 0; i < count; ++i) update(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    symbols[best] = results[best];
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    update(best);
    if (best > 0) update(best - 1);
  }
  ids.insert(ids.end(), symbols, symbols + count);
}

// Looks up the pair that starts at the symbol and queues it.
void Bpe::update_pair(BpeScratch& scratch, uint32_t at) const {
  BpeScratch::Symbol& symbol = scratch.symbols_[at];
  symbol.rank = kNoRank;
  if (symbol.next == scratch.symbols_.size()) return;
  const Pair& pair = find(symbol.id, scratch.symbols_[symbol.next].id);
  if (pair.rank == kNoRank) return;
  symbol.rank = pair.rank;
  symbol.result = pair.result;
  scratch.heap_.push_back(uint64_t{pair.rank} << 32 | at);
}

void Bpe::merge_long(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids) const {
  auto& symbols = scratch.symbols_;
  auto& heap = scratch.heap_;
  const auto count = static_cast<uint32_t>(piece.size());
  symbols.resize(count);
  heap.clear();
  for (uint32_t i = 0; i < count; ++i) {
    symbols[i] = {byte_ids_[static_cast<uint8_t>(piece[i])], kNoRank, 0, i - 1, i + 1};
  }
  for (uint32_t i = 0; i < count; ++i) update_pair(scratch, i);
  const std::greater<> smallest_first;
  std::make_heap(heap.begin(), heap.end(), smallest_first);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), smallest_first);
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto at = static_cast<uint32_t>(top);
    BpeScratch::Symbol& symbol = symbols[at];
    // A pair that changed since it was queued has another rank now, or none when it was swallowed.
    if (symbol.rank != top >> 32) continue;
    BpeScratch::Symbol& swallowed = symbols[symbol.next];
    symbol.id = symbol.result;
    symbol.next = swallowed.next;
    swallowed.rank = kNoRank;
    if (symbol.next != count) symbols[symbol.next].previous = at;
    size_t queued = heap.size();
    update_pair(scratch, at);
    if (heap.size() > queued) std::push_heap(heap.begin(), heap.end(), smallest_first);
    queued = heap.size();
    if (at > 0) update_pair(scratch, symbol.previous);
    if (heap.size() > queued) std::push_heap(heap.begin(), heap.end(), smallest_first);
  }
  for (uint32_t i = 0; i != count; i = symbols[i].next) ids.push_back(symbols[i].id);
  if (symbols.capacity() > kKeptSymbols) {
    symbols = {};
    heap = {};
  }
}

}  // namespace deepinfer::text
