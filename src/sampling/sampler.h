#pragma once

// Sampler: logits, parameters and (seed, position) to a token id.
//
// Order of operations: log-probabilities for reports, from the raw logits -> penalties of the seen
// ids (repetition: positive logits are divided, negative ones multiplied; presence: subtracted
// once; frequency: subtracted per occurrence) -> banned ids -> temperature -> top-k -> top-p, of
// what top-k left -> min-p, relative to the most likely -> draw. Temperature 0 is greedy: the most
// likely id after penalties and bans. Ties go to the lowest id everywhere.
//
// The random number of a draw is keyed by (seed, position), see philox.h, so a result depends on
// the arguments only. Ids more than 30 temperatures below the most likely are never drawn: together
// they weigh less than one step of the 24-bit random number.
//
// Threads: pure functions; a Workspace belongs to one caller at a time.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kernels/isa.h"
#include "sampling/philox.h"

namespace deepinfer::sampling {

inline constexpr int32_t kMaxTopLogprobs = 20;

struct Parameters {
  float temperature = 0.0f;         // >= 0, 0 is greedy
  int32_t top_k = 0;                // 0: off
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1]
  float repetition_penalty = 1.0f;  // > 0
  float presence_penalty = 0.0f;    // [-2, 2]
  float frequency_penalty = 0.0f;   // [-2, 2]
  uint64_t seed = 0;
  std::vector<int32_t> banned_ids = {};
  int32_t top_logprobs = 0;  // how many alternatives to report, 0..20
  bool want_logprob = true;  // false saves a pass over the vocabulary; top_logprobs > 0 implies it
};

// Refuses (invalid) NaN and what is out of range, naming the field and the value.
Result<void> validate(const Parameters& parameters);

struct Sampled {
  int32_t id = -1;
  float logprob = 0;  // natural log, of the raw logits at temperature 1; 0 when not wanted
  std::vector<std::pair<int32_t, float>> top;  // id, logprob; most likely first
};

// Scratch memory that is kept between calls.
class Workspace {
 public:
  struct Candidate {
    int32_t id;
    float logit;
    double weight;  // exp((logit - highest) / temperature)
  };
  std::vector<float> logits;          // [vocab], after penalties and bans
  std::vector<uint32_t> counts;       // [vocab], all zero between calls
  std::vector<Candidate> candidates;  // up to [vocab]
};

// logits [vocab] of the row at `position` (the new token will stand at position + 1). seen: ids of
// prompt and output so far. Requires valid parameters and all ids below vocab. Fails (internal) on
// logits that are NaN or +infinity, and (invalid) when nothing is left to choose.
Result<Sampled> sample(kernels::Isa isa, std::span<const float> logits,
                       const Parameters& parameters, uint64_t position,
                       std::span<const int32_t> seen, Workspace& workspace);

// Log-probability of `id` and the `count` most likely ids (at most kMaxTopLogprobs).
Result<Sampled> score(kernels::Isa isa, std::span<const float> logits, int32_t id, int32_t count);

}  // namespace deepinfer::sampling
