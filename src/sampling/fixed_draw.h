#pragma once

// The draws of Generator::deepinfer: Philox streams named by (seed, position, case) and a
// categorical draw over weights in fixed point, in the order of lanes. Integer once the weights are
// rounded, so a result depends on the row alone. Source: spec deepinfer_engine.md 7.2, 7.3.
//
// Threads: pure functions; the scratch belongs to one caller at a time.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace deepinfer::sampling {

// What a stream decides.
enum class StreamCase : uint64_t { fresh = 0, residual = 1, accept = 2 };

// Added to the seed for a drafter's own draws, mod 2^64.
inline constexpr uint64_t kDraftSeedOffset = 1'000'000'007;
// Row j of a step draws at its first row's position plus j times this.
inline constexpr uint64_t kRowStride = 10'000'019;

struct StreamKey {
  uint64_t seed = 0;
  uint64_t position = 0;
  StreamCase kind = StreamCase::fresh;
};

// Value i of a stream.
uint32_t stream_value(const StreamKey& key, uint64_t i);
// Value 0 of a stream as a number in (0, 1].
float stream_uniform(const StreamKey& key);

// floor(weight * 2^31) for 0 <= weight < 2.
uint32_t fixed_point(float weight);

// The columns are folded into this many lanes, column mod lanes.
size_t lane_count(size_t width);

// One of the columns ids[i] of a row of `width`, with probability proportional to weights[i] (fixed
// point). Lanes in ascending order, in a lane columns in ascending order. ids ascend. Returns its
// index i, or ids.size() when all weights are 0. Requires a sum of the weights below 2^32.
size_t draw_fixed(std::span<const int32_t> ids, std::span<const uint32_t> weights, size_t width,
                  const StreamKey& key, std::vector<uint32_t>& lanes);

}  // namespace deepinfer::sampling
