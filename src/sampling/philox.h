#pragma once

// Philox4x32-10: a counter-based random number generator, a pure function of key and counter.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
//
// Threads: any.

#include <array>
#include <cstdint>

namespace deepinfer::sampling {

// key: seed, low word first. counter: counter_low, then counter_high, low word first.
std::array<uint32_t, 4> philox4x32(uint64_t seed, uint64_t counter_low, uint64_t counter_high);

// In [0, 1), a multiple of 2^-24: the draw for the token after `position`.
float uniform(uint64_t seed, uint64_t position);

}  // namespace deepinfer::sampling
