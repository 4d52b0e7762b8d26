#pragma once

// The primes that size the hash tables of V4.1's Engram (spec v41.md 4.8): increasing from
// engram_vocab_size on, none used twice, in the order layer, n-gram length, head. Layer L's table
// has the sum of its primes as rows.
//
// Threads: any; pure functions.

#include <cstdint>
#include <vector>

#include "weights/deepseek/deepseek_config.h"

namespace deepinfer::weights {

// Bounds of what a configuration may ask for: primes fit 32 bits, and there are few.
inline constexpr uint64_t kEngramVocabLimit = uint64_t{1} << 31;
inline constexpr uint64_t kEngramNgramLimit = 16;
inline constexpr uint64_t kEngramHeadLimit = 64;
inline constexpr uint64_t kEngramPrimeLimit = 2048;  // of all layers

// [layers][(max_ngram - 1) * heads], n-gram length outermost (from 2).
std::vector<std::vector<uint64_t>> engram_primes(const EngramConfig& engram);
// [layers] rows of each table.
std::vector<uint64_t> engram_rows(const EngramConfig& engram);

}  // namespace deepinfer::weights
