#pragma once

// Distribution: what the token of a row is drawn from, between preparing the row and drawing. Used
// by sample() and by the verifier of drafts.
//
//   const Distribution p = TRY(distribution(row, parameters, workspace));
//   const int32_t id = p.greedy ? p.best : draw(p, row, parameters, workspace);
//
// The kept ids and their weights lie in the workspace until its next use. Weights are relative to
// the most likely id with Generator::position, probabilities with Generator::deepinfer.
//
// Threads: pure functions; a Workspace belongs to one caller at a time.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "sampling/fixed_draw.h"
#include "sampling/sampler.h"

namespace deepinfer::sampling {

struct Distribution {
  std::span<const float> raw;     // [vocab], as they came
  std::span<const float> logits;  // [vocab] after bias, penalties, bans and mask
  size_t raw_best = 0;            // highest of raw
  int32_t best = 0;               // highest of logits, lowest of equals
  float temperature = 1;          // 1 when greedy
  bool greedy = false;            // the token is `best`
  bool listed = false;            // only workspace.ids are kept; else all whose logit is finite
  // Unless greedy: log p(id) = (logit - logits[best]) / temperature - log_normalizer.
  double log_normalizer = 0;
  bool raw_sums = false;  // workspace.sums are those of raw at temperature 1
};

// Requires valid parameters; errors as sample() says.
Result<Distribution> distribution(const SampleRow& row, const Parameters& parameters,
                                  Workspace& workspace);

// A token with the random numbers of the row. Requires !greedy.
int32_t draw(const Distribution& p, const SampleRow& row, const Parameters& parameters,
             Workspace& workspace);

// The stream of a row with Generator::deepinfer.
StreamKey stream_key(const SampleRow& row, const Parameters& parameters, StreamCase kind);

// Natural log of the probability that a draw gives the id; -infinity when it cannot.
double log_probability(const Distribution& p, int32_t id, const Workspace& workspace);

// Lists what can be drawn: workspace.ids ascending, workspace.weights as probabilities.
void list_probabilities(const SampleRow& row, const Parameters& parameters, Distribution& p,
                        Workspace& workspace);
// Draws from that list after the caller changed its weights, with the random numbers of a fresh
// token or of one instead of a draft; -1 when all weights are 0.
int32_t draw_listed(const SampleRow& row, const Parameters& parameters, bool residual,
                    Workspace& workspace);

// All probabilities as natural logs, -infinity for what cannot be drawn; greedy has 0 for one id.
// For drafters that sample. out: [vocab].
void write_log_probabilities(const Distribution& p, std::span<float> out,
                             const Workspace& workspace);

// The id with the log-probabilities that the parameters ask for.
Sampled describe(const Distribution& p, const SampleRow& row, const Parameters& parameters,
                 int32_t id, Workspace& workspace);

}  // namespace deepinfer::sampling
