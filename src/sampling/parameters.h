#pragma once

// Parameters: how the tokens of one request are sampled. The order in which they act, and the rules
// where two of them meet, stand at the top of sampler.h.
//
// Threads: plain values.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/result.h"

namespace deepinfer::sampling {

inline constexpr int32_t kMaxTopLogprobs = 1000;
// Temperatures below this one are greedy (spec deepinfer_engine.md 2.3).
inline constexpr float kGreedyTemperature = 1e-5f;
inline constexpr float kMaxLogitBias = 100.0f;

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
  float temperature = 0.0f;         // >= 0; below kGreedyTemperature is greedy
  int32_t top_k = 0;                // 0: off
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1]
  float repetition_penalty = 1.0f;  // [0.01, 100]
  float presence_penalty = 0.0f;    // [-2, 2]
  float frequency_penalty = 0.0f;   // [-2, 2]
  uint64_t seed = 0;
  std::vector<int32_t> banned_ids = {};
  int32_t top_logprobs = 0;  // how many alternatives to report, 0..kMaxTopLogprobs
  bool want_logprob = true;  // false saves a pass over the vocabulary; top_logprobs > 0 implies it
  LogprobKind logprobs = LogprobKind::raw;
  // Id and what is added to its logit, within kMaxLogitBias of 0; before everything else; each id
  // once.
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  Generator generator = Generator::position;
  // Only the k largest logits exist, for the softmax too; 0: off. Generator::deepinfer only, where
  // top_k does not renormalise before top_p.
  int32_t force_top_k = 0;
  bool want_smaller_sum = false;  // Sampled::smaller_sum
};

// Refuses (invalid) NaN, what is out of range and what contradicts itself, naming the fields and
// the values: min_p with Generator::deepinfer, force_top_k without it, an id with a bias that is
// banned too or has two biases, negative ids. vocab: ids must be below; 0 when not known.
Result<void> validate(const Parameters& parameters, size_t vocab = 0);

}  // namespace deepinfer::sampling
