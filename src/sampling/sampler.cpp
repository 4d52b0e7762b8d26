#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "sampling/adjusted_row.h"
#include "sampling/candidate_selection.h"
#include "sampling/distribution.h"

namespace deepinfer::sampling {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Widths below the highest that are searched for the most likely ids, at temperature 1.
constexpr float kSpreads[] = {6.0f, 12.0f, 24.0f, kInfinity};

float floored(double logprob) {
  return logprob > static_cast<double>(kLogprobFloor) ? static_cast<float>(logprob) : kLogprobFloor;
}

// workspace.candidates = the `count` most likely of all finite logits, sorted. Leaves the list of
// kept ids alone.
void find_top(kernels::Isa isa, std::span<const float> logits, size_t best, size_t count,
              float temperature, Workspace& workspace) {
  for (float spread : kSpreads) {
    const float threshold = spread == kInfinity ? std::numeric_limits<float>::lowest()
                                                : logits[best] - spread * temperature;
    find_at_least(isa, logits, threshold, workspace.found, workspace.top_ids);
    if (workspace.top_ids.size() >= count) break;
  }
  workspace.candidates.clear();
  for (int32_t id : workspace.top_ids) {
    workspace.candidates.push_back({id, logits[static_cast<size_t>(id)], 0});
  }
}

// The `count` most likely candidates as (id, log-probability).
template <class Logprob>
void report_top(size_t count, Logprob logprob, Workspace& workspace, Sampled& out) {
  std::vector<Workspace::Candidate>& all = workspace.candidates;
  count = std::min(count, all.size());
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(count);
  if (count < all.size()) std::nth_element(all.begin(), end, all.end(), more_likely);
  std::sort(all.begin(), end, more_likely);
  out.top.reserve(count);
  for (size_t i = 0; i < count; ++i) out.top.emplace_back(all[i].id, floored(logprob(all[i])));
}

// log_sum: natural log of the sum of exp(logit).
void report_raw(kernels::Isa isa, std::span<const float> logits, size_t best, double log_sum,
                size_t count, Workspace& workspace, Sampled& out) {
  out.logprob = floored(static_cast<double>(logits[static_cast<size_t>(out.id)]) - log_sum);
  if (count == 0) return;
  find_top(isa, logits, best, count, 1.0f, workspace);
  report_top(
      count, [&](const auto& c) { return static_cast<double>(c.logit) - log_sum; }, workspace, out);
}

void report_filtered(const Distribution& p, kernels::Isa isa, size_t count, Workspace& workspace,
                     Sampled& out) {
  out.logprob = floored(log_probability(p, out.id, workspace));
  if (count == 0) return;
  if (p.listed) {
    gather_candidates(workspace);
  } else {
    find_top(isa, p.logits, static_cast<size_t>(p.best), count, p.temperature, workspace);
  }
  report_top(
      count, [&](const auto& c) { return log_probability(p, c.id, workspace); }, workspace, out);
}

// Sum of the probabilities below that of the id, or equal to it and up to its index.
float smaller_sum(const Distribution& p, int32_t id, const Workspace& workspace) {
  const float bound = p.logits[static_cast<size_t>(id)];
  double sum = 0;
  const auto add = [&](int32_t other) {
    const float logit = p.logits[static_cast<size_t>(other)];
    if (logit > bound || (logit == bound && other > id)) return;
    sum += std::exp(log_probability(p, other, workspace));
  };
  if (p.listed) {
    for (int32_t other : workspace.ids) add(other);
  } else {
    for (size_t other = 0; other < p.logits.size(); ++other) add(static_cast<int32_t>(other));
  }
  return static_cast<float>(std::min(sum, 1.0));
}

// What reports call filtered: greedy choices are described at temperature 1.
Distribution reported(const Distribution& p, kernels::Isa isa, Workspace& workspace) {
  Distribution out = p;
  if (!p.greedy) return out;
  out.greedy = false;
  out.log_normalizer =
      std::log(exp_sum(isa, p.logits, static_cast<size_t>(p.best), 1.0f, workspace.sums));
  return out;
}

}  // namespace

Sampled describe(const Distribution& p, const SampleRow& row, const Parameters& parameters,
                 int32_t id, Workspace& workspace) {
  Sampled sampled;
  sampled.id = id;
  const bool wanted = parameters.want_logprob || parameters.top_logprobs > 0;
  const size_t count = static_cast<size_t>(parameters.top_logprobs);
  if (wanted && parameters.logprobs == LogprobKind::raw) {
    const double sum = p.raw_sums
                           ? std::accumulate(workspace.sums.begin(), workspace.sums.end(), 0.0)
                           : exp_sum(row.isa, p.raw, p.raw_best, 1.0f, workspace.sums);
    const double log_sum = std::log(sum) + static_cast<double>(p.raw[p.raw_best]);
    report_raw(row.isa, p.raw, p.raw_best, log_sum, count, workspace, sampled);
  }
  const bool filtered = wanted && parameters.logprobs == LogprobKind::filtered;
  if (!filtered && !parameters.want_smaller_sum) return sampled;
  const Distribution q = reported(p, row.isa, workspace);
  if (filtered) report_filtered(q, row.isa, count, workspace, sampled);
  if (parameters.want_smaller_sum) sampled.smaller_sum = smaller_sum(q, id, workspace);
  return sampled;
}

Result<Sampled> sample(const SampleRow& row, const Parameters& parameters, Workspace& workspace) {
  const bool forced = row.forced >= 0;
  if (forced && parameters.logprobs == LogprobKind::raw && !parameters.want_smaller_sum) {
    // Nothing is drawn and nothing filtered is reported.
    check(!row.logits.empty(), "no logits");
    Distribution p;
    p.raw = p.logits = row.logits;
    p.raw_best = TRY(highest(row.isa, row.logits, "logits"));
    TRY(check_row(row, parameters));
    return describe(p, row, parameters, row.forced, workspace);
  }
  const Distribution p = TRY(distribution(row, parameters, workspace));
  const int32_t id = forced ? row.forced : p.greedy ? p.best : draw(p, row, parameters, workspace);
  return describe(p, row, parameters, id, workspace);
}

Result<Sampled> score(kernels::Isa isa, std::span<const float> logits, int32_t id, int32_t count,
                      Workspace& workspace) {
  check(id >= 0 && static_cast<size_t>(id) < logits.size(), "scored id outside the vocabulary");
  check(count >= 0 && count <= kMaxTopLogprobs, "count of alternatives");
  const SampleRow row = {.isa = isa, .logits = logits, .forced = id};
  return sample(row, {.top_logprobs = count}, workspace);
}

}  // namespace deepinfer::sampling
