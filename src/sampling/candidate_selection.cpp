#include "sampling/candidate_selection.h"

#include <algorithm>
#include <numeric>

#include "sampling/vocabulary_ops.h"

namespace deepinfer::sampling {
namespace {

using Candidate = Workspace::Candidate;

double mass_of(std::span<const Candidate> candidates) {
  return std::accumulate(candidates.begin(), candidates.end(), 0.0, [](double sum, Candidate c) {
    return sum + static_cast<double>(c.weight);
  });
}

}  // namespace

bool more_likely(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

void gather_candidates(Workspace& workspace) {
  workspace.candidates.resize(workspace.ids.size());
  for (size_t i = 0; i < workspace.ids.size(); ++i) {
    workspace.candidates[i] = {workspace.ids[i], workspace.kept_logits[i], workspace.weights[i]};
  }
}

size_t count_to_mass(std::vector<Candidate>& candidates, double wanted) {
  const std::span<Candidate> all(candidates);
  if (mass_of(all) < wanted) return candidates.size();
  // The `low` most likely stand first and weigh `before` < wanted, `high` of them weigh enough.
  size_t low = 0, high = candidates.size();
  double before = 0;
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    std::nth_element(all.begin() + static_cast<std::ptrdiff_t>(low),
                     all.begin() + static_cast<std::ptrdiff_t>(middle),
                     all.begin() + static_cast<std::ptrdiff_t>(high), more_likely);
    const double mass = mass_of(all.subspan(low, middle - low));
    if (before + mass >= wanted) {
      high = middle;
    } else {
      before += mass;
      low = middle;
    }
  }
  return high;
}

void keep_most_likely(size_t count, Workspace& workspace) {
  std::vector<Candidate>& candidates = workspace.candidates;
  check(candidates.size() == workspace.ids.size() && count > 0, "candidates of the list");
  if (count >= candidates.size()) return;
  const auto last = candidates.begin() + static_cast<std::ptrdiff_t>(count - 1);
  std::nth_element(candidates.begin(), last, candidates.end(), more_likely);
  const Candidate least = *last;
  size_t kept = 0;
  for (size_t i = 0; i < workspace.ids.size(); ++i) {
    const Candidate c = {workspace.ids[i], workspace.kept_logits[i], workspace.weights[i]};
    if (more_likely(least, c)) continue;
    workspace.ids[kept] = c.id;
    workspace.kept_logits[kept] = c.logit;
    workspace.weights[kept++] = c.weight;
  }
  workspace.ids.resize(kept);
  workspace.kept_logits.resize(kept);
  workspace.weights.resize(kept);
}

void find_at_least(kernels::Isa isa, std::span<const float> logits, float threshold,
                   std::vector<int32_t>& ids) {
  ids.resize(logits.size());
  ids.resize(vocabulary_ops(isa).at_least(logits.data(), logits.size(), threshold, ids.data()));
}

double exp_sum(kernels::Isa isa, std::span<const float> logits, size_t best, float temperature,
               std::vector<double>& sums) {
  sums.resize((logits.size() + kSumBlock - 1) / kSumBlock);
  vocabulary_ops(isa).exp_sums(logits.data(), logits.size(), logits[best], temperature,
                               sums.data());
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace deepinfer::sampling
