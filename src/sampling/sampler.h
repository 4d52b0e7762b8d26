#pragma once

// Sampler: logits, parameters and (seed, position) to a token id.
//
// Order of operations: logit bias -> penalties of the seen ids (repetition: positive logits are
// divided, negative ones multiplied; presence: subtracted once; frequency: subtracted per
// occurrence) -> banned ids and mask -> temperature -> top-k -> top-p, of what top-k left -> min-p,
// relative to the most likely -> draw. Ties go to the lowest id everywhere. With
// Generator::deepinfer: force_top_k -> temperature -> top-p and top-k, each of all, the shorter
// list stays -> draw in fixed point (spec deepinfer_engine.md 7.1).
//
// Where options meet:
// - Greedy (temperature below 1e-5) is the most likely id after bias, penalties, bans and mask;
//   top_k, top_p, min_p and the seed have no effect. With Generator::deepinfer it is a draw at
//   temperature 1e-5, which splits equal maxima by the random stream.
// - Mask, banned ids of the parameters and of the row: an id must pass all of them. When none is
//   left, that is an error; a bias brings no banned id back.
// - A forced id stands whatever the logits, mask and bans say; its log-probability is reported.
// - Penalties count prompt and output. A ban wins over a penalty, a penalty sees the biased logit.
// - Log-probabilities are natural logarithms, floored at -9999. raw: of the logits as they came, so
//   neither bias nor mask nor temperature show. filtered: of what was drawn from; ids that were
//   filtered out have -9999 and are left out of top lists, which may then be shorter; greedy is
//   reported at temperature 1 without filters, since the choice itself says nothing.
// - top_k and top_logprobs above the vocabulary mean all of it.
// - top-k, top-p and min-p look no further than 30 temperatures below the most likely id: what lies
//   below weighs less than 1e-13.
//
// The random number of a draw is keyed by (seed, position), see philox.h, or by fixed_draw.h, so a
// result depends on the arguments only. The kept ids divide [0, 1) in ascending order.
//
// Threads: pure functions; a Workspace belongs to one caller at a time.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kernels/isa.h"
#include "sampling/parameters.h"

namespace deepinfer::sampling {

// Log-probabilities are not reported below.
inline constexpr float kLogprobFloor = -9999.0f;

struct Sampled {
  int32_t id = -1;
  float logprob = 0;  // natural log, as Parameters::logprobs says; 0 when not wanted
  std::vector<std::pair<int32_t, float>> top;  // id, logprob; most likely first
  // With want_smaller_sum: sum of the probabilities up to that of the id, in what was drawn from
  // (of equals those up to its index count); else -1.
  float smaller_sum = -1;
};

// Scratch memory that is kept between calls.
class Workspace {
 public:
  struct Candidate {
    int32_t id;
    float logit;
    float weight;
  };
  std::vector<float> logits;          // [vocab], after bias, penalties, bans and mask
  std::vector<uint32_t> counts;       // [vocab], all zero between calls
  std::vector<double> sums;           // [ceil(vocab / 1024)] of weights, see distribution.h
  std::vector<int32_t> ids;           // [kept], ascending
  std::vector<float> kept_logits;     // [kept]
  std::vector<float> weights;         // [kept]
  std::vector<uint32_t> fixed;        // [kept], weights in fixed point
  std::vector<uint32_t> lanes;        // see fixed_draw.h
  std::vector<int32_t> found;         // [vocab], scratch of searches
  std::vector<int32_t> top_ids;       // up to [vocab], for top lists
  std::vector<Candidate> candidates;  // up to [vocab]
};

// Whose random numbers a row draws with.
enum class Stream {
  token,  // those of the token itself
  draft,  // a drafter's own: with Acceptance::stochastic drafts must be drawn with these
};

// One row to sample from.
struct SampleRow {
  kernels::Isa isa = kernels::Isa::ref;
  std::span<const float> logits;       // [vocab]
  uint64_t position = 0;               // of the row; the new token stands at position + 1
  std::span<const int32_t> seen = {};  // ids of prompt and output so far, for penalties
  // Bit v % 32 of word v / 32: id v is allowed; empty: all are. [ceil(vocab / 32)]
  std::span<const uint32_t> mask = {};
  std::span<const int32_t> banned = {};  // besides Parameters::banned_ids (min tokens: stop ids)
  int32_t forced = -1;                   // teacher forcing: this id, whatever the logits say
  // With Generator::deepinfer: index of the token among the outputs at the step's first row, and
  // the row of the sequence within the step (spec deepinfer_engine.md 7.2).
  uint64_t output_index = 0;
  uint32_t row_offset = 0;
  Stream stream = Stream::token;
};

// Requires valid parameters. Fails (internal) on logits that are NaN or +infinity, wherever in the
// row, and on a mask of the wrong size, (invalid) on ids outside the vocabulary and when nothing is
// left to choose.
Result<Sampled> sample(const SampleRow& row, const Parameters& parameters, Workspace& workspace);

// Raw log-probability of `id` and of the `count` most likely ids (at most kMaxTopLogprobs), for
// prompts. For filtered ones sample a row with `forced`.
Result<Sampled> score(kernels::Isa isa, std::span<const float> logits, int32_t id, int32_t count,
                      Workspace& workspace);

}  // namespace deepinfer::sampling
