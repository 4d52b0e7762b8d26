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

// What a weight counts for a share.
enum class Mass {
  weight,
  fixed_point,  // fixed_draw.h
};
double mass_of(std::span<const float> weights, Mass mass);

// Reduces ids, kept_logits and weights to the shortest list of the most likely whose mass is
// `wanted` or more, and to `most` ids, whichever is shorter; all of them when they do not weigh
// that much. Ids stay in ascending order. Requires most > 0.
void keep_most_likely(size_t most, double wanted, Mass mass, Workspace& workspace);

// The ascending indices of logits >= threshold. The scratch grows to [vocab].
void find_at_least(kernels::Isa isa, std::span<const float> logits, float threshold,
                   std::vector<int32_t>& scratch, std::vector<int32_t>& ids);

// Sum of exp((logit - logits[best]) / temperature), and its parts by block (vocabulary_ops.h).
double exp_sum(kernels::Isa isa, std::span<const float> logits, size_t best, float temperature,
               std::vector<double>& sums);

}  // namespace deepinfer::sampling
