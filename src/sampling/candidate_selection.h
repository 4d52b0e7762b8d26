#pragma once

// Selection of the most likely ids among candidates, in linear time, and sums over the vocabulary.
// Order: higher logits first, lower ids first of equals.
//
// Threads: pure functions; a Workspace belongs to one caller at a time.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sampling/sampler.h"

namespace deepinfer::sampling {

bool more_likely(const Workspace::Candidate& a, const Workspace::Candidate& b);

// workspace.candidates = what workspace.ids, kept_logits and weights say.
void gather_candidates(Workspace& workspace);

// How many of the most likely weigh `wanted` together; all of them when they do not. Reorders the
// candidates.
size_t count_to_mass(std::vector<Workspace::Candidate>& candidates, double wanted);

// Reduces ids, kept_logits and weights to the `count` most likely, still in ascending order of ids.
// Requires candidates of the same ids; reorders them.
void keep_most_likely(size_t count, Workspace& workspace);

// The ascending indices of logits >= threshold.
void find_at_least(kernels::Isa isa, std::span<const float> logits, float threshold,
                   std::vector<int32_t>& ids);

// Sum of exp((logit - logits[best]) / temperature), and its parts by block (vocabulary_ops.h).
double exp_sum(kernels::Isa isa, std::span<const float> logits, size_t best, float temperature,
               std::vector<double>& sums);

}  // namespace deepinfer::sampling
