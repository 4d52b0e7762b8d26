#pragma once

// NumpyRandom: the integers that numpy.random.default_rng(seed) draws, since V4.1 defines its
// Engram multipliers by them. Sources: SeedSequence (after M. E. O'Neill's seed_seq), PCG64 XSL-RR
// (O'Neill 2014), bounded draws by 64-bit multiplication (Lemire 2019).
//
// Threads: a plain value.

#include <cstdint>

namespace deepinfer::models {

class NumpyRandom {
 public:
  explicit NumpyRandom(uint64_t seed);

  uint64_t next();
  // integers(0, bound) of dtype int64. Requires: bound - 1 > 2^32 - 1, where numpy takes 64 bits a
  // draw, or bound == 1.
  uint64_t below(uint64_t bound);

 private:
  __extension__ using Wide = unsigned __int128;
  void step();
  Wide state_ = 0;
  Wide increment_ = 0;
};

}  // namespace deepinfer::models
