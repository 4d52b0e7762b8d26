#pragma once

// Sampler: logits, parameters and (seed, position) to a token id.
//
// Order of operations: logit bias is none yet; penalties (repetition: divide positive, multiply
// negative logits of seen ids; presence and frequency: subtract) -> banned ids -> log-probabilities
// for reporting are those of the raw logits before any of this -> temperature -> top-k -> top-p ->
// min-p (relative to the most likely) -> draw. temperature 0 is greedy: the most likely id after
// penalties, ties by the lowest id.
//
// The random number of a draw is a counter-based generator keyed by (seed, position), so a result
// depends on nothing else. Source of the generator: Salmon et al. 2011, Philox4x32-10.
//
// Threads: pure functions; a Workspace belongs to one caller at a time.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kernels/isa.h"

namespace deepinfer::sampling {

struct Parameters {
  float temperature = 0.0f;          // >= 0, 0 is greedy
  int32_t top_k = 0;                 // 0: off
  float top_p = 1.0f;                // (0, 1]
  float min_p = 0.0f;                // [0, 1]
  float repetition_penalty = 1.0f;   // > 0
  float presence_penalty = 0.0f;     // [-2, 2]
  float frequency_penalty = 0.0f;    // [-2, 2]
  uint64_t seed = 0;
  std::vector<int32_t> banned_ids;
  int32_t top_logprobs = 0;          // how many alternatives to report, 0..20
};

// Refuses NaN and what is out of range, naming the field and the value.
Result<void> validate(const Parameters& parameters);

struct Sampled {
  int32_t id = -1;
  float logprob = 0;  // natural log, of the raw logits at temperature 1
  std::vector<std::pair<int32_t, float>> top;  // most likely first, ties by lower id
};

class Workspace {
 public:
  std::vector<float> logits;
  std::vector<int32_t> order;
  std::vector<float> weights;
};

// logits [vocab] of the row that ends at `position` (the new token will stand at position + 1).
// seen: ids of prompt and output so far, for the penalties. Fails (internal) on NaN logits.
Result<Sampled> sample(kernels::Isa isa, std::span<const float> logits,
                       const Parameters& parameters, uint64_t position,
                       std::span<const int32_t> seen, Workspace& workspace);

// Log-probability of `id` and the `count` most likely ids.
Result<Sampled> score(kernels::Isa isa, std::span<const float> logits, int32_t id, int32_t count,
                      Workspace& workspace);

// The generator itself: four words for a (seed, counter); uniform() in [0, 1) of 24 bits.
void philox4x32(uint64_t seed, uint64_t counter_low, uint64_t counter_high, uint32_t out[4]);
float uniform(uint64_t seed, uint64_t position);

}  // namespace deepinfer::sampling
