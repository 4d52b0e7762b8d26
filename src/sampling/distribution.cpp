#include "sampling/distribution.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "sampling/adjusted_row.h"
#include "sampling/candidate_selection.h"
#include "sampling/philox.h"
#include "sampling/vocabulary_ops.h"

namespace deepinfer::sampling {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Widths, in temperatures below the highest logit, that are searched for the most likely ids; the
// last one bounds every filter (sampler.h).
constexpr float kSpreads[] = {4.0f, 8.0f, 16.0f, 30.0f};
constexpr float kWidest = 30.0f;

// The sum of all weights; workspace.sums are those of its blocks.
double sum_all(kernels::Isa isa, Distribution& p, Workspace& workspace) {
  p.raw_sums = p.temperature == 1.0f && p.logits.data() == p.raw.data();
  return exp_sum(isa, p.logits, static_cast<size_t>(p.best), p.temperature, workspace.sums);
}

// Lists the ids within `spread` temperatures of the best, with their weights.
void list_within(kernels::Isa isa, const Distribution& p, float spread, Workspace& workspace) {
  const float top = p.logits[static_cast<size_t>(p.best)];
  const float threshold =
      spread == kInfinity ? std::numeric_limits<float>::lowest() : top - spread * p.temperature;
  find_at_least(isa, p.logits, threshold, workspace.found, workspace.ids);
  const size_t count = workspace.ids.size();
  workspace.kept_logits.resize(count);
  workspace.weights.resize(count);
  for (size_t i = 0; i < count; ++i) {
    workspace.kept_logits[i] = p.logits[static_cast<size_t>(workspace.ids[i])];
  }
  vocabulary_ops(isa).weights(workspace.kept_logits.data(), count, top, p.temperature,
                              workspace.weights.data());
}

constexpr double kAnyMass = std::numeric_limits<double>::infinity();
constexpr size_t kAnyCount = std::numeric_limits<size_t>::max();

// The k most likely ids, as far as they lie within the widest spread.
void list_top_k(kernels::Isa isa, const Distribution& p, size_t k, float widest,
                Workspace& workspace) {
  for (float spread : kSpreads) {
    list_within(isa, p, spread, workspace);
    if (workspace.ids.size() >= k) break;
  }
  if (workspace.ids.size() < k && widest > kWidest) list_within(isa, p, widest, workspace);
  keep_most_likely(k, kAnyMass, Mass::weight, workspace);
}

// The shortest list of most likely ids that weighs `wanted`.
void list_mass(kernels::Isa isa, const Distribution& p, double wanted, Workspace& workspace) {
  for (float spread : kSpreads) {
    list_within(isa, p, spread, workspace);
    if (mass_of(workspace.weights, Mass::weight) >= wanted) break;
  }
  keep_most_likely(kAnyCount, wanted, Mass::weight, workspace);
}

void keep_min_p(float min_p, Workspace& workspace) {
  size_t kept = 0;
  for (size_t i = 0; i < workspace.ids.size(); ++i) {
    if (workspace.weights[i] < min_p) continue;
    workspace.ids[kept] = workspace.ids[i];
    workspace.kept_logits[kept] = workspace.kept_logits[i];
    workspace.weights[kept++] = workspace.weights[i];
  }
  workspace.ids.resize(kept);
  workspace.kept_logits.resize(kept);
  workspace.weights.resize(kept);
}

void filter(const SampleRow& row, const Parameters& parameters, Distribution& p,
            Workspace& workspace) {
  const size_t k = static_cast<size_t>(parameters.top_k);
  const bool limits_count = k > 0 && k < p.logits.size();
  const bool limits_mass = parameters.top_p < 1.0f;
  p.listed = limits_count || limits_mass || parameters.min_p > 0.0f;
  if (limits_count) {
    list_top_k(row.isa, p, k, kWidest, workspace);
    if (limits_mass) {
      const double wanted =
          static_cast<double>(parameters.top_p) * mass_of(workspace.weights, Mass::weight);
      keep_most_likely(kAnyCount, wanted, Mass::weight, workspace);
    }
  } else if (limits_mass) {
    const double all = sum_all(row.isa, p, workspace);
    list_mass(row.isa, p, static_cast<double>(parameters.top_p) * all, workspace);
  } else if (parameters.min_p > 0.0f) {
    // A little further than needed; keep_min_p() decides.
    const float spread = 0.01f - std::log(parameters.min_p);
    list_within(row.isa, p, std::min(spread, kWidest), workspace);
  }
  if (parameters.min_p > 0.0f) keep_min_p(parameters.min_p, workspace);
  p.log_normalizer = std::log(p.listed ? mass_of(workspace.weights, Mass::weight)
                                       : sum_all(row.isa, p, workspace));
}

void divide_weights(double by, Workspace& workspace) {
  for (float& w : workspace.weights) w = static_cast<float>(static_cast<double>(w) / by);
}

// Spec deepinfer_engine.md 7.1, steps 5 to 8. Lists what has a chance; weights are probabilities.
void filter_deepinfer(const SampleRow& row, const Parameters& parameters, Distribution& p,
                      Workspace& workspace) {
  const bool greedy = parameters.temperature < kGreedyTemperature;
  p.temperature = std::max(parameters.temperature, kGreedyTemperature);
  const float top_p = greedy ? 1.0f : parameters.top_p;
  const size_t k =
      greedy || parameters.top_k == 0 ? kAnyCount : static_cast<size_t>(parameters.top_k);
  const size_t within = static_cast<size_t>(parameters.force_top_k);
  const bool filters = k < p.logits.size() || top_p < 1.0f;
  const double wanted =
      top_p < 1.0f ? std::floor(static_cast<double>(top_p) * 0x1p31) + 1.0 : kAnyMass;
  double total = 0;
  if (within > 0 && within < p.logits.size()) {
    p.listed = true;
    list_top_k(row.isa, p, within, kInfinity, workspace);
    total = mass_of(workspace.weights, Mass::weight);
    divide_weights(total, workspace);
  } else {
    total = sum_all(row.isa, p, workspace);
    for (float spread : kSpreads) {
      if (!filters && spread < kWidest) continue;
      list_within(row.isa, p, spread, workspace);
      divide_weights(total, workspace);
      if (workspace.ids.size() >= k || mass_of(workspace.weights, Mass::fixed_point) >= wanted) {
        break;
      }
    }
  }
  p.log_normalizer = std::log(total);
  if (!filters) return;
  keep_most_likely(k, wanted, Mass::fixed_point, workspace);
  p.listed = true;
  const double mass = mass_of(workspace.weights, Mass::weight);
  divide_weights(mass, workspace);
  p.log_normalizer += std::log(mass);
}

int32_t draw_from_blocks(const SampleRow& row, const Distribution& p, double u,
                         Workspace& workspace) {
  double left = u * std::accumulate(workspace.sums.begin(), workspace.sums.end(), 0.0);
  size_t block = 0;
  while (block + 1 < workspace.sums.size() && left >= workspace.sums[block]) {
    left -= workspace.sums[block++];
  }
  // Rounding may leave a little behind the last block that weighs anything.
  while (block > 0 && workspace.sums[block] <= 0.0) --block;
  const size_t start = block * kSumBlock;
  const size_t count = std::min(kSumBlock, p.logits.size() - start);
  workspace.weights.resize(count);
  vocabulary_ops(row.isa).weights(p.logits.data() + start, count,
                                  p.logits[static_cast<size_t>(p.best)], p.temperature,
                                  workspace.weights.data());
  size_t last = 0;
  for (size_t i = 0; i < count; ++i) {
    if (workspace.weights[i] <= 0.0f) continue;
    last = i;
    left -= static_cast<double>(workspace.weights[i]);
    if (left < 0) break;
  }
  return static_cast<int32_t>(start + last);
}

}  // namespace

Result<Distribution> distribution(const SampleRow& row, const Parameters& parameters,
                                  Workspace& workspace) {
  check(!row.logits.empty(), "no logits");
  Distribution p;
  p.raw = row.logits;
  p.raw_best = TRY(highest(row.isa, row.logits, "logits"));
  p.logits = TRY(adjusted_row(row, parameters, workspace));
  size_t best = p.raw_best;
  if (p.logits.data() != p.raw.data()) {
    best = TRY(highest(row.isa, p.logits, "logits after bias and penalties"));
  }
  if (p.logits[best] == -kInfinity) {
    return Error::invalid("sampling", "none of the " + std::to_string(p.logits.size()) +
                                          " ids is allowed: " + bans_text(row, parameters));
  }
  p.best = static_cast<int32_t>(best);
  if (parameters.generator == Generator::deepinfer) {
    filter_deepinfer(row, parameters, p, workspace);
  } else if (parameters.temperature < kGreedyTemperature) {
    p.greedy = true;
  } else {
    p.temperature = parameters.temperature;
    filter(row, parameters, p, workspace);
  }
  return p;
}

StreamKey stream_key(const SampleRow& row, const Parameters& parameters, StreamCase kind) {
  return {.seed = parameters.seed + (row.stream == Stream::draft ? kDraftSeedOffset : 0),
          .position = row.output_index + kRowStride * row.row_offset,
          .kind = kind};
}

int32_t draw_listed(const SampleRow& row, const Parameters& parameters, bool residual,
                    Workspace& workspace) {
  if (parameters.generator == Generator::deepinfer) {
    workspace.fixed.resize(workspace.weights.size());
    std::transform(workspace.weights.begin(), workspace.weights.end(), workspace.fixed.begin(),
                   fixed_point);
    const StreamKey key =
        stream_key(row, parameters, residual ? StreamCase::residual : StreamCase::fresh);
    const size_t i =
        draw_fixed(workspace.ids, workspace.fixed, row.logits.size(), key, workspace.lanes);
    return i < workspace.ids.size() ? workspace.ids[i] : -1;
  }
  const Purpose purpose = residual                      ? Purpose::residual
                          : row.stream == Stream::draft ? Purpose::draft
                                                        : Purpose::token;
  double left =
      uniform(parameters.seed, row.position, purpose) * mass_of(workspace.weights, Mass::weight);
  int32_t id = -1;
  for (size_t i = 0; i < workspace.ids.size(); ++i) {
    if (workspace.weights[i] <= 0.0f) continue;
    id = workspace.ids[i];
    left -= static_cast<double>(workspace.weights[i]);
    if (left < 0) break;
  }
  return id;
}

int32_t draw(const Distribution& p, const SampleRow& row, const Parameters& parameters,
             Workspace& workspace) {
  check(!p.greedy, "a greedy token is not drawn");
  if (p.listed || parameters.generator == Generator::deepinfer) {
    const int32_t id = draw_listed(row, parameters, false, workspace);
    return id >= 0 ? id : p.best;
  }
  const Purpose purpose = row.stream == Stream::draft ? Purpose::draft : Purpose::token;
  return draw_from_blocks(row, p, uniform(parameters.seed, row.position, purpose), workspace);
}

double log_probability(const Distribution& p, int32_t id, const Workspace& workspace) {
  if (p.greedy) return id == p.best ? 0.0 : -static_cast<double>(kInfinity);
  if (p.listed && !std::binary_search(workspace.ids.begin(), workspace.ids.end(), id)) {
    return -static_cast<double>(kInfinity);
  }
  const double distance = static_cast<double>(p.logits[static_cast<size_t>(id)]) -
                          static_cast<double>(p.logits[static_cast<size_t>(p.best)]);
  return distance / static_cast<double>(p.temperature) - p.log_normalizer;
}

void list_probabilities(const SampleRow& row, const Parameters& parameters, Distribution& p,
                        Workspace& workspace) {
  if (p.greedy) {
    workspace.ids.assign(1, p.best);
    workspace.kept_logits.assign(1, p.logits[static_cast<size_t>(p.best)]);
    workspace.weights.assign(1, 1.0f);
    return;
  }
  if (parameters.generator == Generator::deepinfer) return;
  if (!p.listed) list_within(row.isa, p, kWidest, workspace);
  divide_weights(std::exp(p.log_normalizer), workspace);
}

void write_log_probabilities(const Distribution& p, std::span<float> out,
                             const Workspace& workspace) {
  check(out.size() == p.logits.size(), "one log-probability for each id");
  if (p.greedy || p.listed) std::fill(out.begin(), out.end(), -kInfinity);
  if (p.greedy) {
    out[static_cast<size_t>(p.best)] = 0.0f;
  } else if (p.listed) {
    for (int32_t id : workspace.ids) {
      out[static_cast<size_t>(id)] = static_cast<float>(log_probability(p, id, workspace));
    }
  } else {
    const float top = p.logits[static_cast<size_t>(p.best)];
    const float normalizer = static_cast<float>(p.log_normalizer);
    for (size_t id = 0; id < out.size(); ++id) {
      out[id] = (p.logits[id] - top) / p.temperature - normalizer;
    }
  }
}

}  // namespace deepinfer::sampling
