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

// What a random number decides; the numbers of different purposes are independent.
enum class Purpose : uint64_t {
  token = 0,     // the token after `position`
  accept = 1,    // whether the draft after `position` stands
  residual = 2,  // the token instead of a draft that does not stand
  draft = 3,     // a drafter's token after `position`
};

// In [0, 1), a multiple of 2^-53, keyed by (seed, position, purpose): counter words are position
// and purpose.
double uniform(uint64_t seed, uint64_t position, Purpose purpose = Purpose::token);

}  // namespace deepinfer::sampling
