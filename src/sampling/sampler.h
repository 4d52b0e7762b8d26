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

// Which distribution reported log-probabilities are of.
enum class LogprobKind {
  raw,       // the model's, at temperature 1
  filtered,  // what was drawn from: after bias, penalties, temperature, filters and masks
};

// How the random number of a draw is made.
enum class Generator {
  position,   // philox.h, keyed by (seed, absolute position)
  deepinfer,  // DeepInfer's Philox stream and fixed-point draw, for comparisons with it
};

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
  LogprobKind logprobs = LogprobKind::raw;
  std::vector<std::pair<int32_t, float>> logit_bias =
      {};  // added before everything else; each once
  Generator generator = Generator::position;
};

// Refuses (invalid) NaN and what is out of range, naming the field and the value.
Result<void> validate(const Parameters& parameters);

struct Sampled {
  int32_t id = -1;
  float logprob = 0;  // natural log, as Parameters::logprobs says; 0 when not wanted
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

// One row to sample from.
struct SampleRow {
  kernels::Isa isa = kernels::Isa::ref;
  std::span<const float> logits;       // [vocab]
  uint64_t position = 0;               // of the row; the new token stands at position + 1
  std::span<const int32_t> seen = {};  // ids of prompt and output so far, for penalties
  // Bit v of word v / 32: id v is allowed; empty: all are. [ceil(vocab / 32)]
  std::span<const uint32_t> mask = {};
  std::span<const int32_t> banned = {};  // besides Parameters::banned_ids (min tokens: stop ids)
  int32_t forced = -1;                   // teacher forcing: this id, whatever the logits say
  // With Generator::deepinfer: index of the token among the outputs at the step's first row, and
  // the row of the sequence within the step (spec deepinfer_engine.md 7.2).
  uint64_t output_index = 0;
  uint32_t row_offset = 0;
};
Result<Sampled> sample(const SampleRow& row, const Parameters& parameters, Workspace& workspace);

// logits [vocab] of the row at `position` (the new token will stand at position + 1). seen: ids of
// prompt and output so far. Requires valid parameters and all ids below vocab. Fails (internal) on
// logits that are NaN or +infinity, and (invalid) when nothing is left to choose.
Result<Sampled> sample(kernels::Isa isa, std::span<const float> logits,
                       const Parameters& parameters, uint64_t position,
                       std::span<const int32_t> seen, Workspace& workspace);

// Log-probability of `id` and the `count` most likely ids (at most kMaxTopLogprobs).
Result<Sampled> score(kernels::Isa isa, std::span<const float> logits, int32_t id, int32_t count);

}  // namespace deepinfer::sampling
