#pragma once

// ToySequence: a sequence whose entries say what was read to compute them, for the tests of this
// folder. Entry p is a hash of all tokens up to p, made from entry p - 1, and the frontier is the
// last entry: a wrong page, position, order or frontier changes what comes after.

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "cache/prefix_cache.h"

namespace deepinfer::cache {

inline constexpr size_t kToyFrontierBytes = 64;

inline std::unique_ptr<PagePool> toy_pool(size_t pages, bool frontier) {
  CacheLayout layout;
  layout.growing = {{"unused", 64}, {"entries", kTokensPerPage * sizeof(uint64_t)}};
  if (frontier) layout.frontier = {{"last entry", kToyFrontierBytes}};
  auto pool = PagePool::create(std::move(layout), pages);
  EXPECT_TRUE(pool.ok());
  return std::move(pool).value();
}

struct ToySequence {
  SequenceCache cache;
  std::vector<int32_t> ids = {};
  std::vector<ContentSpan> contents = {};
  uint64_t salt = 0;
  uint64_t noise = 0;  // makes entries approximate: other bytes, the same tokens
  SequenceStart start = {};

  PrefixKey key() const { return {.ids = ids, .contents = contents, .salt = salt}; }

  static uint64_t next(uint64_t state, uint64_t token) {
    state = (state ^ (token + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
    return state ^ (state >> 29);
  }
  // What stands for the token at `position`.
  uint64_t token(size_t position) const {
    for (const ContentSpan& span : contents) {
      if (position >= span.start && position - span.start < span.count) {
        return span.content.low * 1000 + (position - span.start);
      }
    }
    return static_cast<uint64_t>(ids[position]);
  }
  uint64_t entry(uint64_t position) const {
    uint64_t value = 0;
    const std::byte* page = cache.page(position / kTokensPerPage, 1);
    std::memcpy(&value, page + position % kTokensPerPage * sizeof(value), sizeof(value));
    return value;
  }
  uint64_t frontier() const {
    uint64_t value = 0;
    std::memcpy(&value, cache.frontier_bytes().data(), sizeof(value));
    return value;
  }
  bool has_frontier() const { return !cache.frontier_bytes().empty(); }

  // Computes entries [length, to), from the frontier where there is one. False: no pages.
  bool compute(uint64_t to) {
    if (!cache.reserve(to).ok()) return false;
    const uint64_t from = cache.length();
    uint64_t state = from == 0 ? salt : has_frontier() ? frontier() : entry(from - 1);
    for (uint64_t p = from; p < to; ++p) {
      state = next(state, token(p)) ^ noise;
      std::byte* page = cache.page(p / kTokensPerPage, 1);
      std::memcpy(page + p % kTokensPerPage * sizeof(state), &state, sizeof(state));
    }
    set_length(to);
    return true;
  }
  // Also back: a rejected draft.
  void set_length(uint64_t length) {
    cache.set_length(length);
    if (!has_frontier()) return;
    const uint64_t state = length == 0 ? salt : entry(length - 1);
    std::memcpy(cache.frontier(), &state, sizeof(state));
  }
  // Are entries and frontier what a computation in full gives?
  void expect_exact(const char* what = "") const {
    uint64_t state = salt;
    for (uint64_t p = 0; p < cache.length(); ++p) {
      state = next(state, token(p));
      ASSERT_EQ(entry(p), state) << what << " position " << p << " of " << cache.length();
    }
    if (has_frontier() && cache.length() > 0) ASSERT_EQ(frontier(), state) << what;
  }
};

// Ids [first, first + count), each 31 more than the one before modulo 997: no two positions alike.
inline std::vector<int32_t> toy_ids(size_t count, int32_t first = 1) {
  std::vector<int32_t> ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = first + static_cast<int32_t>(i * 31 % 997);
  return ids;
}

inline ToySequence toy_sequence(PagePool& pool, std::vector<int32_t> ids, uint64_t salt = 0) {
  return {.cache = SequenceCache(&pool), .ids = std::move(ids), .salt = salt};
}

}  // namespace deepinfer::cache
