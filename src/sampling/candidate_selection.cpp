#include "sampling/candidate_selection.h"

#include <algorithm>
#include <numeric>

#include "sampling/fixed_draw.h"
#include "sampling/vocabulary_ops.h"

namespace deepinfer::sampling {
namespace {

using Candidate = Workspace::Candidate;

// Lists longer than this are cut by a histogram of the logits first.
constexpr size_t kShortList = 128;
constexpr size_t kBuckets = 1024;

double mass_of(float weight, Mass mass) {
  return mass == Mass::weight ? static_cast<double>(weight)
                              : static_cast<double>(fixed_point(weight));
}

double mass_of(std::span<const Candidate> candidates, Mass mass) {
  double sum = 0;
  for (const Candidate& c : candidates) sum += mass_of(c.weight, mass);
  return sum;
}

// How many of the most likely have the mass together; all of them when they do not. Reorders.
size_t count_to_mass(std::span<Candidate> all, double wanted, Mass mass) {
  if (mass_of(all, mass) < wanted) return all.size();
  // The `low` most likely stand first and have less than wanted, `high` of them have enough.
  size_t low = 0, high = all.size();
  double before = 0;
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    std::nth_element(all.begin() + static_cast<std::ptrdiff_t>(low),
                     all.begin() + static_cast<std::ptrdiff_t>(middle),
                     all.begin() + static_cast<std::ptrdiff_t>(high), more_likely);
    const double more = mass_of(all.subspan(low, middle - low), mass);
    if (before + more >= wanted) {
      high = middle;
    } else {
      before += more;
      low = middle;
    }
  }
  return high;
}

// The last of those that stay, among workspace.candidates.
Candidate find_least(size_t most, double wanted, Mass mass, Workspace& workspace) {
  std::vector<Candidate>& all = workspace.candidates;
  const size_t count = std::min(most, count_to_mass(all, wanted, mass));
  const auto last = all.begin() + static_cast<std::ptrdiff_t>(count - 1);
  std::nth_element(all.begin(), last, all.end(), more_likely);
  return *last;
}

// Narrows workspace.candidates to the bucket of logits in which the list ends, and takes what
// stands before it off `most` and `wanted`. Buckets have equal width in logits.
void gather_bucket(size_t& most, double& wanted, Mass mass, Workspace& workspace) {
  const std::vector<float>& logits = workspace.kept_logits;
  const auto [low, high] = std::minmax_element(logits.begin(), logits.end());
  const float top = *high, scale = static_cast<float>(kBuckets) / (top - *low);
  const auto bucket_of = [&](float logit) {
    // The first bucket also takes the NaN of equal logits.
    const float place = (top - logit) * scale;
    return place > 0 ? std::min(static_cast<size_t>(std::min(place, 1e6f)), kBuckets - 1) : 0;
  };
  size_t counts[kBuckets] = {};
  double masses[kBuckets] = {};
  for (size_t i = 0; i < logits.size(); ++i) {
    const size_t bucket = bucket_of(logits[i]);
    ++counts[bucket];
    masses[bucket] += mass_of(workspace.weights[i], mass);
  }
  size_t bucket = 0;
  while (bucket + 1 < kBuckets && counts[bucket] < most && masses[bucket] < wanted) {
    most -= counts[bucket];
    wanted -= masses[bucket++];
  }
  // Behind the last logit only where rounding lost some mass.
  while (counts[bucket] == 0) {
    most += counts[--bucket];
    wanted += masses[bucket];
  }
  workspace.candidates.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (bucket_of(logits[i]) != bucket) continue;
    workspace.candidates.push_back({workspace.ids[i], logits[i], workspace.weights[i]});
  }
}

}  // namespace

bool more_likely(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

double mass_of(std::span<const float> weights, Mass mass) {
  double sum = 0;
  for (float w : weights) sum += mass_of(w, mass);
  return sum;
}

void gather_candidates(Workspace& workspace) {
  workspace.candidates.resize(workspace.ids.size());
  for (size_t i = 0; i < workspace.ids.size(); ++i) {
    workspace.candidates[i] = {workspace.ids[i], workspace.kept_logits[i], workspace.weights[i]};
  }
}

void keep_most_likely(size_t most, double wanted, Mass mass, Workspace& workspace) {
  check(most > 0 && !workspace.ids.empty(), "an empty list");
  if (most >= workspace.ids.size() && mass_of(workspace.weights, mass) < wanted) return;
  if (workspace.ids.size() <= kShortList) {
    gather_candidates(workspace);
  } else {
    gather_bucket(most, wanted, mass, workspace);
  }
  const Candidate least = find_least(most, wanted, mass, workspace);
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
                   std::vector<int32_t>& scratch, std::vector<int32_t>& ids) {
  if (scratch.size() < logits.size()) scratch.resize(logits.size());
  const size_t count =
      vocabulary_ops(isa).at_least(logits.data(), logits.size(), threshold, scratch.data());
  ids.assign(scratch.begin(), scratch.begin() + static_cast<std::ptrdiff_t>(count));
}

double exp_sum(kernels::Isa isa, std::span<const float> logits, size_t best, float temperature,
               std::vector<double>& sums) {
  sums.resize((logits.size() + kSumBlock - 1) / kSumBlock);
  vocabulary_ops(isa).exp_sums(logits.data(), logits.size(), logits[best], temperature,
                               sums.data());
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace deepinfer::sampling
