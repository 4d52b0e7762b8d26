#pragma once

// Verifier: which token stands after a verified row.
//
//   sample_match: the row's own token is sampled as without a draft, keyed by its position; the
//     draft stands while it is the same. Text does not depend on speculation, bit for bit.
//   stochastic: the rule of speculative sampling: a draft d stands with probability
//     min(1, p(d) / q(d)), else the token is drawn from max(p - q, 0). The distribution is that of
//     sampling without drafts; the text is another draw. Source: spec deepinfer_engine.md 6.5.
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
  int32_t draft = -1;          // the token proposed after this row; -1: none, the last row
  // [vocab] log-probabilities that the draft was drawn with; empty: it was certain.
  std::span<const float> draft_log_probabilities = {};
};

struct Verdict {
  sampling::Sampled token;
  bool accepted = false;  // token is the draft, so the next row is valid
  float acceptance = 0;   // estimated probability that a draft stands here; 0 without a draft
};

Result<Verdict> verify(Acceptance acceptance, const VerifyRow& row,
                       const sampling::Parameters& parameters, sampling::Workspace& workspace);

}  // namespace deepinfer::speculation
