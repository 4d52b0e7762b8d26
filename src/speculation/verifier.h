#pragma once

// Verifier: which token stands after a verified row.
//
//   sample_match: the row's own token is sampled as without a draft, keyed by its position; the
//     draft stands while it is the same. Text does not depend on speculation, bit for bit, with
//     either generator: DeepInfer's stream is that of the token's index among the outputs, whatever
//     its row in the step.
//   stochastic: the rule of speculative sampling: a draft d stands with probability
//     min(1, p(d) / q(d)), else the token is drawn from max(p - q, 0). The distribution is that of
//     sampling without drafts; the text is another draw. Source: spec deepinfer_engine.md 6.5.
//
// Random numbers of the stochastic rule, none of which a token without a draft uses:
// Generator::position takes those of Purpose::accept and Purpose::residual at the row's position
// (philox.h); Generator::deepinfer takes stream cases 2 and 1 of the row, subtracts e^-5e-5 q and
// draws in fixed point. A residual without any weight (p and q are equal up to rounding) gives the
// most likely id.
//
// p is what sample() draws from: after bias, penalties, bans, mask, temperature and filters. A
// forced id is the token whatever was drafted, and the draft stands when it is that id. Greedy rows
// compare with the most likely id under both rules.
//
// Threads: pure functions; the workspace belongs to one caller at a time.

#include <cstdint>
#include <span>

#include "base/result.h"
#include "sampling/sampler.h"

namespace deepinfer::speculation {

enum class Acceptance { sample_match, stochastic };

// One row of a sequence in a step that verifies a draft.
struct VerifyRow {
  sampling::SampleRow sample;  // logits, position, what was seen, mask: see sampler.h
  // The token proposed after this row; -1: none, the last row. An id outside the vocabulary never
  // stands.
  int32_t draft = -1;
  // [vocab] log-probabilities that the draft was drawn with, by Stream::draft; empty: it was
  // certain.
  std::span<const float> draft_log_probabilities = {};
};

struct Verdict {
  sampling::Sampled token;
  bool accepted = false;  // token is the draft, so the next row is valid
  // Probability that this draft (sample_match, or a certain one) or a draft from its distribution
  // stands here; 0 without a draft.
  float acceptance = 0;
  // Log-probability that an accepted draft was drawn with; 1: there is none.
  float draft_logprob = 1;
};

// Errors as sampling::sample() says.
Result<Verdict> verify(Acceptance acceptance, const VerifyRow& row,
                       const sampling::Parameters& parameters, sampling::Workspace& workspace);

}  // namespace deepinfer::speculation
