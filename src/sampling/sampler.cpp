#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/row_ops.h"

namespace deepinfer::sampling {
namespace {

using Candidate = Workspace::Candidate;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Widths, in temperatures below the highest logit, that are searched for the most likely ids; the
// last one bounds every draw (sampler.h).
constexpr float kSpreads[] = {4.0f, 8.0f, 16.0f, 30.0f};
constexpr float kWidest = 30.0f;

Error out_of_range(const char* field, double value, const char* range) {
  return Error::invalid(field, std::to_string(value) + " is not " + range);
}

// Index of the highest logit; an error when that is no number to sample with.
Result<size_t> highest(kernels::Isa isa, std::span<const float> logits) {
  const size_t best = kernels::row_ops(isa).argmax(logits.data(), logits.size());
  if (best >= logits.size()) {
    const auto nan = std::find_if(logits.begin(), logits.end(), [](float x) { return x != x; });
    return Error{ErrorKind::internal, "logits",
                 "NaN for id " + std::to_string(nan - logits.begin()),
                 "the model's result is void"};
  }
  if (logits[best] == kInfinity) {
    return Error{ErrorKind::internal, "logits", "infinite for id " + std::to_string(best),
                 "the model's result is void"};
  }
  return best;
}

bool changes_logits(const Parameters& p) {
  return p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f ||
         p.frequency_penalty != 0.0f || !p.banned_ids.empty();
}

// workspace.logits = logits after penalties and bans.
void adjust(std::span<const float> logits, const Parameters& p, std::span<const int32_t> seen,
            Workspace& workspace) {
  workspace.logits.assign(logits.begin(), logits.end());
  workspace.counts.resize(logits.size(), 0);
  for (int32_t id : seen) {
    check(id >= 0 && static_cast<size_t>(id) < logits.size(), "seen id outside the vocabulary");
    ++workspace.counts[static_cast<size_t>(id)];
  }
  for (int32_t id : seen) {
    uint32_t& count = workspace.counts[static_cast<size_t>(id)];
    if (count == 0) continue;  // an earlier occurrence was counted for all
    float& logit = workspace.logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty;
    logit -= p.presence_penalty + p.frequency_penalty * static_cast<float>(count);
    count = 0;
  }
  for (int32_t id : p.banned_ids) {
    check(id >= 0 && static_cast<size_t>(id) < logits.size(), "banned id outside the vocabulary");
    workspace.logits[static_cast<size_t>(id)] = -kInfinity;
  }
}

bool more_likely(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// All ids within `spread` temperatures of the top, in ascending order of id.
void collect(std::span<const float> logits, float top, float temperature, float spread,
             std::vector<Candidate>& out) {
  out.clear();
  const float lowest = top - spread * temperature;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] < lowest) continue;
    const double weight = std::exp((logits[i] - top) / temperature);
    out.push_back({static_cast<int32_t>(i), logits[i], weight});
  }
}

double total_weight(const std::vector<Candidate>& candidates) {
  double total = 0;
  for (const Candidate& c : candidates) total += c.weight;
  return total;
}

// How many of the most likely reach `mass`; all of them when they do not.
size_t count_to_mass(const std::vector<Candidate>& sorted, double mass) {
  double sum = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    sum += sorted[i].weight;
    if (sum >= mass) return i + 1;
  }
  return sorted.size();
}

// The top_k most likely ids, sorted.
void keep_top_k(std::span<const float> logits, float top, const Parameters& p,
                std::vector<Candidate>& out) {
  const size_t k = static_cast<size_t>(p.top_k);
  for (float spread : kSpreads) {
    collect(logits, top, p.temperature, spread, out);
    if (out.size() >= k) break;
  }
  if (out.size() > k) {
    std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(k), out.end(),
                     more_likely);
    out.resize(k);
  }
  std::sort(out.begin(), out.end(), more_likely);
}

// The smallest set of most likely ids whose share of all is top_p or more, sorted.
void keep_top_p(std::span<const float> logits, float top, const Parameters& p,
                std::vector<Candidate>& out) {
  if (p.top_k > 0) {
    keep_top_k(logits, top, p, out);
    out.resize(count_to_mass(out, p.top_p * total_weight(out)));
    return;
  }
  collect(logits, top, p.temperature, kWidest, out);
  const double mass = p.top_p * total_weight(out);
  // Sorting is the expensive part: only as many as hold the mass.
  for (float spread : kSpreads) {
    collect(logits, top, p.temperature, spread, out);
    if (total_weight(out) >= mass) break;
  }
  std::sort(out.begin(), out.end(), more_likely);
  out.resize(count_to_mass(out, mass));
}

int32_t draw(std::span<const float> logits, size_t best, const Parameters& p, uint64_t position,
             std::vector<Candidate>& candidates) {
  const float top = logits[best];
  if (p.top_p < 1.0f) {
    keep_top_p(logits, top, p, candidates);
  } else if (p.top_k > 0) {
    keep_top_k(logits, top, p, candidates);
  } else {
    collect(logits, top, p.temperature, kWidest, candidates);
  }
  if (p.min_p > 0.0f) {
    std::erase_if(candidates, [&](const Candidate& c) { return c.weight < p.min_p; });
  }
  const double target = uniform(p.seed, position) * total_weight(candidates);
  double sum = 0;
  for (const Candidate& c : candidates) {
    sum += c.weight;
    if (sum > target) return c.id;
  }
  return static_cast<int32_t>(best);
}

// The `count` most likely ids with their log-probabilities, most likely first.
void report_top(std::span<const float> logits, size_t count, double log_sum, Sampled& out) {
  count = std::min(count, logits.size());
  if (count == 0) return;
  std::vector<std::pair<int32_t, float>>& top = out.top;
  top.reserve(count + 1);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (top.size() == count && logits[i] <= top.back().second) continue;
    const auto place =
        std::upper_bound(top.begin(), top.end(), logits[i],
                         [](float x, const auto& entry) { return x > entry.second; });
    top.insert(place, {static_cast<int32_t>(i), logits[i]});
    if (top.size() > count) top.pop_back();
  }
  for (auto& entry : top) entry.second = static_cast<float>(entry.second - log_sum);
}

void report(kernels::Isa isa, std::span<const float> logits, size_t count, Sampled& out) {
  const double log_sum = kernels::row_ops(isa).log_sum_exp(logits.data(), logits.size());
  out.logprob = static_cast<float>(logits[static_cast<size_t>(out.id)] - log_sum);
  report_top(logits, count, log_sum, out);
}

}  // namespace

Result<void> validate(const Parameters& p) {
  // Written so that NaN fails every test.
  if (!(p.temperature >= 0.0f && p.temperature < kInfinity)) {
    return out_of_range("temperature", p.temperature, "0 or a positive number");
  }
  if (p.top_k < 0) return out_of_range("top_k", p.top_k, "0 or a positive number");
  if (!(p.top_p > 0.0f && p.top_p <= 1.0f)) {
    return out_of_range("top_p", p.top_p, "above 0 and up to 1");
  }
  if (!(p.min_p >= 0.0f && p.min_p <= 1.0f)) return out_of_range("min_p", p.min_p, "0 to 1");
  if (!(p.repetition_penalty > 0.0f && p.repetition_penalty < kInfinity)) {
    return out_of_range("repetition_penalty", p.repetition_penalty, "a positive number");
  }
  if (!(std::abs(p.presence_penalty) <= 2.0f)) {
    return out_of_range("presence_penalty", p.presence_penalty, "-2 to 2");
  }
  if (!(std::abs(p.frequency_penalty) <= 2.0f)) {
    return out_of_range("frequency_penalty", p.frequency_penalty, "-2 to 2");
  }
  if (p.top_logprobs < 0 || p.top_logprobs > kMaxTopLogprobs) {
    return out_of_range("top_logprobs", p.top_logprobs, "0 to 20");
  }
  return {};
}

Result<Sampled> sample(kernels::Isa isa, std::span<const float> logits,
                       const Parameters& parameters, uint64_t position,
                       std::span<const int32_t> seen, Workspace& workspace) {
  check(!logits.empty(), "no logits");
  size_t best = TRY(highest(isa, logits));
  std::span<const float> adjusted = logits;
  if (changes_logits(parameters)) {
    adjust(logits, parameters, seen, workspace);
    adjusted = workspace.logits;
    best = TRY(highest(isa, adjusted));
  }
  if (adjusted[best] == -kInfinity) {
    return Error::invalid("sampling",
                          "none of the " + std::to_string(logits.size()) + " ids is allowed: " +
                              std::to_string(parameters.banned_ids.size()) + " are banned");
  }
  Sampled sampled;
  sampled.id = parameters.temperature == 0.0f
                   ? static_cast<int32_t>(best)
                   : draw(adjusted, best, parameters, position, workspace.candidates);
  if (parameters.want_logprob || parameters.top_logprobs > 0) {
    report(isa, logits, static_cast<size_t>(parameters.top_logprobs), sampled);
  }
  return sampled;
}

Result<Sampled> score(kernels::Isa isa, std::span<const float> logits, int32_t id, int32_t count) {
  check(id >= 0 && static_cast<size_t>(id) < logits.size(), "scored id outside the vocabulary");
  check(count >= 0 && count <= kMaxTopLogprobs, "count of alternatives");
  TRY(highest(isa, logits));
  Sampled sampled;
  sampled.id = id;
  report(isa, logits, static_cast<size_t>(count), sampled);
  return sampled;
}

}  // namespace deepinfer::sampling
