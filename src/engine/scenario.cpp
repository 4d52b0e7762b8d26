#include "engine/scenario.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>

namespace deepinfer::engine {
namespace {

constexpr size_t kPageBytes = cache::kTokensPerPage * sizeof(int32_t);
constexpr size_t kContext = 600;
constexpr uint64_t kRingWindow = 16;

// Entries alone; windows that replay restores; windows that only snapshots restore, with and
// without room for drafts; windows and a decoder that runs for the tail only.
const SimulatedModel::Family kFamilies[] = {
    {.name = "entries"},
    {.name = "windows",
     .window = kRingWindow,
     .exact_replay = 40,
     .bounded_replay = 20,
     .rollback = 5},
    {.name = "snapshots", .window = kRingWindow, .exact_replay = UINT64_MAX, .rollback = 5},
    {.name = "tail",
     .window = kRingWindow,
     .exact_replay = 40,
     .bounded_replay = 30,
     .tail = 24,
     .rollback = 5},
    {.name = "whole steps", .window = kRingWindow, .exact_replay = UINT64_MAX, .rollback = 0},
};

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  size_t below(size_t count) { return static_cast<size_t>(random_() % count); }
  size_t between(size_t least, size_t most) { return least + below(most - least + 1); }
  bool chance(double share) { return static_cast<double>(random_() >> 11) * 0x1p-53 < share; }
  // Mostly small.
  size_t skewed(size_t least, size_t most) { return least + below(below(most - least + 1) + 1); }
  int32_t id() { return static_cast<int32_t>(2 + below(SimulatedText::kLastId - 1)); }
  std::vector<int32_t> ids(size_t count) {
    std::vector<int32_t> all(count);
    for (int32_t& one : all) one = id();
    return all;
  }

 private:
  std::mt19937_64 random_;
};

Engine::Options make_options(Dice& dice) {
  Engine::Options options;
  options.max_sequences = dice.between(1, 14);
  options.max_waiting = dice.chance(0.2) ? dice.between(1, 6) : 200;
  options.max_rows = dice.between(std::max<size_t>(4, options.max_sequences / 2), 80);
  const size_t least_pages = cache::pages_for(kContext);
  options.cache_bytes = dice.between(least_pages, least_pages + dice.skewed(0, 40)) * kPageBytes;
  options.context = dice.chance(0.2) ? dice.between(200, kContext) : 0;
  options.prefix_cache = dice.chance(0.8);
  const uint64_t frontier = (kRingWindow + 5) * 16;
  const uint64_t snapshots[] = {0, 2 * frontier, 10 * frontier, 1000 * frontier};
  options.snapshot_bytes = snapshots[dice.below(4)];
  options.identity = {dice.below(1000), 7};
  options.snapshot_every_pages = dice.below(4);
  options.prefill_every = static_cast<uint32_t>(dice.between(1, 6));
  options.target_step_ms = dice.chance(0.4) ? 0.5 : 0;
  return options;
}

void add_sampling(Request& request, Dice& dice) {
  sampling::Parameters& sampling = request.sampling;
  if (dice.chance(0.4)) sampling.temperature = 0.8f;
  if (dice.chance(0.2)) sampling.top_k = static_cast<int32_t>(dice.between(1, 20));
  if (dice.chance(0.2)) sampling.top_p = 0.9f;
  if (dice.chance(0.1)) sampling.min_p = 0.05f;
  if (dice.chance(0.1)) sampling.repetition_penalty = 1.2f;
  if (dice.chance(0.1)) sampling.presence_penalty = 0.5f;
  if (dice.chance(0.1)) sampling.frequency_penalty = 0.3f;
  if (dice.chance(0.1)) sampling.top_logprobs = 2;
  if (dice.chance(0.1)) sampling.logit_bias = {{dice.id(), 1.5f}};
  const int32_t biased = sampling.logit_bias.empty() ? -1 : sampling.logit_bias[0].first;
  const int32_t banned = dice.id();
  if (dice.chance(0.1) && banned != biased) sampling.banned_ids = {banned};
  if (dice.chance(0.2)) sampling.want_logprob = sampling.top_logprobs > 0;
  sampling.seed = dice.below(1'000'000);
}

void add_ends(Request& request, Dice& dice) {
  request.max_tokens = dice.chance(0.05) ? 0 : dice.skewed(1, 120);
  request.ignore_eos = dice.chance(0.5);
  if (dice.chance(0.1)) request.stop_ids = {dice.id(), dice.id()};
  if (dice.chance(0.1) && !request.ignore_eos) {
    request.min_tokens = dice.between(0, request.max_tokens);
  } else if (dice.chance(0.1)) {
    request.stop_sequences = {{dice.id(), dice.id()}, {dice.id()}};
  }
  if (dice.chance(0.05)) {
    request.forced_ids = dice.ids(dice.between(1, 10));
    request.forced_ids[dice.below(request.forced_ids.size())] = -1;
  }
}

void add_images(Request& request, Dice& dice, size_t max_rows) {
  const size_t most = std::min({request.prompt.size() - 1, max_rows, size_t{20}});
  if (most == 0) return;
  const size_t count = dice.between(1, most);
  PromptImage image;
  image.start = dice.below(request.prompt.size() - count);
  const size_t picture = dice.below(3);
  auto values = std::make_shared<std::vector<float>>();
  for (size_t i = 0; i < count; ++i) values->push_back(static_cast<float>(picture * 10 + i % 9));
  for (const float& value : *values) image.embeddings.push_back(&value);
  image.owner = values;
  image.content = {picture, count};
  request.images = {std::move(image)};
  std::fill_n(request.prompt.begin() + static_cast<std::ptrdiff_t>(request.images[0].start), count,
              2);
}

void spoil(Arrival& arrival, Dice& dice) {
  arrival.invalid = true;
  arrival.follows.reset();
  Request& request = arrival.request;
  switch (dice.below(6)) {
    case 0:
      request.prompt.clear();
      request.images.clear();
      break;
    case 1:
      request.prompt.back() = SimulatedText::kVocab;
      break;
    case 2:
      request.prompt.front() = -1;
      break;
    case 3:
      request.prompt.resize(kContext + 1, 5);
      break;
    case 4:
      request.sampling.temperature = -1;
      break;
    default:
      request.sampling.top_p = 0;
  }
}

class ScenarioMaker {
 public:
  ScenarioMaker(uint64_t seed, size_t steps, const ScenarioLimits& limits) : dice_(seed) {
    scenario_.seed = seed;
    scenario_.steps = steps;
    scenario_.context = kContext;
    scenario_.options = make_options(dice_);
    const bool overlapped = dice_.chance(0.5);
    scenario_.options.mode = overlapped ? LoopMode::overlapped : LoopMode::plain;
    if (limits.mode) scenario_.options.mode = *limits.mode;
    scenario_.options.compute_thread = false;  // a seed always does the same
    const size_t family = dice_.below(std::size(kFamilies));
    scenario_.family = kFamilies[limits.family.value_or(family)];
    for (std::vector<int32_t>& stem : stems_) stem = dice_.ids(dice_.between(5, 400));
  }

  Scenario make() {
    // From nearly idle to more than an engine can do.
    constexpr double kArrivalsAStep[] = {0.03, 0.1, 0.3};
    const double arrivals_a_step = kArrivalsAStep[dice_.below(3)];
    for (size_t step = 0; step < scenario_.steps; ++step) {
      size_t count = dice_.chance(arrivals_a_step) ? 1 : 0;
      if (dice_.chance(0.002)) count = dice_.between(2, 20);
      while (count-- > 0) arrive(step);
      if (!scenario_.arrivals.empty() && dice_.chance(0.03)) cancel(step);
      if (dice_.chance(0.004)) scenario_.faults.push_back({step, dice_.between(1, 3)});
    }
    return std::move(scenario_);
  }

 private:
  void arrive(size_t step) {
    Arrival arrival;
    arrival.step = step;
    Request& request = arrival.request;
    request.id = next_id_++;
    const std::vector<int32_t>& stem = stems_[dice_.below(std::size(stems_))];
    if (dice_.chance(0.8)) {
      const size_t cut = dice_.chance(0.7) ? stem.size() : dice_.between(1, stem.size());
      request.prompt.assign(stem.begin(), stem.begin() + static_cast<std::ptrdiff_t>(cut));
    }
    const std::vector<int32_t> tail = dice_.ids(dice_.skewed(1, 150));
    request.prompt.insert(request.prompt.end(), tail.begin(), tail.end());
    add_sampling(request, dice_);
    add_ends(request, dice_);
    add_service(request);
    if (request.prompt.size() > 1 && dice_.chance(0.05)) {
      add_images(request, dice_, scenario_.options.max_rows);
    } else if (!scenario_.arrivals.empty() && dice_.chance(0.35)) {
      arrival.follows = scenario_.arrivals[dice_.below(scenario_.arrivals.size())].request.id;
      if (dice_.chance(0.3)) arrival.follow_tokens = dice_.between(1, 400);
    }
    if (request.images.empty() && request.resume != Resume::replay && dice_.chance(0.05)) {
      request.want_prompt_logprobs = true;
    }
    if (dice_.chance(0.02)) {
      request.prompt.back() = dice_.chance(0.5) ? SimulatedText::kFails : SimulatedText::kNan;
      request.images.clear();
      request.want_prompt_logprobs = false;
      request.max_tokens = std::max<size_t>(request.max_tokens, 1);
    }
    if (dice_.chance(0.03)) spoil(arrival, dice_);
    scenario_.arrivals.push_back(std::move(arrival));
  }

  void add_service(Request& request) {
    if (dice_.chance(0.15)) {
      const size_t most = std::min<size_t>(4, scenario_.options.max_waiting);
      request.choices = static_cast<uint32_t>(dice_.between(1, most));
    }
    if (dice_.chance(0.2)) request.priority = static_cast<int>(dice_.between(0, 16)) - 8;
    request.user = dice_.below(4);
    if (request.user == 3) request.weight = 4;
    if (dice_.chance(0.1)) request.ttft_target_ms = static_cast<double>(dice_.between(1, 50));
    if (dice_.chance(0.05)) request.timeout_ms = static_cast<double>(dice_.between(1, 200));
    request.salt = dice_.chance(0.1) ? 1 + dice_.below(3) : 0;
    if (dice_.chance(0.1)) request.resume = Resume::none;
    if (scenario_.family.bounded_replay > 0 && dice_.chance(0.15)) request.resume = Resume::replay;
    if (dice_.chance(0.4)) request.drafting = Drafting::ngram;
    request.most_drafts = dice_.between(1, 6);
    if (dice_.chance(0.3)) request.resume_points = {dice_.between(1, request.prompt.size())};
    request.keep = dice_.chance(0.9);
  }

  void cancel(size_t step) {
    const size_t recent = std::min<size_t>(scenario_.arrivals.size(), 12);
    const size_t index = scenario_.arrivals.size() - 1 - dice_.below(recent);
    scenario_.cancellations.push_back({step, scenario_.arrivals[index].request.id});
  }

  Dice dice_;
  Scenario scenario_;
  std::vector<int32_t> stems_[4];
  uint64_t next_id_ = 1;
};

std::string line_of(const Arrival& arrival) {
  const Request& request = arrival.request;
  std::string line = "  step " + std::to_string(arrival.step) + ": request " +
                     std::to_string(request.id) + ", " + std::to_string(request.prompt.size()) +
                     " tokens";
  const auto add = [&](bool said, const std::string& what) {
    if (said) line += ", " + what;
  };
  add(arrival.follows.has_value(), "after request " + std::to_string(arrival.follows.value_or(0)));
  add(arrival.follow_tokens != SIZE_MAX, "cut to " + std::to_string(arrival.follow_tokens));
  add(arrival.invalid, "invalid");
  add(true, "max " + std::to_string(request.max_tokens));
  add(request.choices > 1, std::to_string(request.choices) + " choices");
  add(request.sampling.temperature > 0, "drawn");
  add(request.priority != 0, "priority " + std::to_string(request.priority));
  add(request.timeout_ms > 0, "timeout " + std::to_string(request.timeout_ms));
  add(request.salt != 0, "salt " + std::to_string(request.salt));
  add(request.resume == Resume::none, "resumes nowhere");
  add(request.resume == Resume::replay, "bounded replay");
  add(request.drafting == Drafting::ngram, "drafts");
  add(request.want_prompt_logprobs, "prompt scores");
  add(!request.images.empty(), "image");
  add(!request.resume_points.empty(),
      "point " + std::to_string(request.resume_points.empty() ? 0 : request.resume_points[0]));
  add(!request.keep, "not kept");
  const int32_t last = request.prompt.empty() ? 0 : request.prompt.back();
  add(last == SimulatedText::kFails, "fails");
  add(last == SimulatedText::kNan, "NaN");
  return line + "\n";
}

}  // namespace

size_t scenario_families() { return std::size(kFamilies); }

Scenario make_scenario(uint64_t seed, size_t steps, const ScenarioLimits& limits) {
  return ScenarioMaker(seed, steps, limits).make();
}

std::string Scenario::text() const {
  std::string out =
      "seed " + std::to_string(seed) + ", family " + family.name + ", " +
      (options.mode == LoopMode::plain ? "plain" : "overlapped") + ", " + std::to_string(steps) +
      " steps, sequences " + std::to_string(options.max_sequences) + ", waiting " +
      std::to_string(options.max_waiting) + ", rows " + std::to_string(options.max_rows) +
      ", pages " + std::to_string(options.cache_bytes / kPageBytes) + ", context " +
      std::to_string(options.context) + ", prefix cache " + (options.prefix_cache ? "on" : "off") +
      ", snapshots " + std::to_string(options.snapshot_bytes) + " bytes every " +
      std::to_string(options.snapshot_every_pages) + " pages, prefill every " +
      std::to_string(options.prefill_every) + ", target " + std::to_string(options.target_step_ms) +
      " ms\n";
  for (const Arrival& arrival : arrivals) out += line_of(arrival);
  for (const Cancellation& one : cancellations) {
    out += "  step " + std::to_string(one.step) + ": cancels " + std::to_string(one.request) + "\n";
  }
  for (const Fault& fault : faults) {
    out += "  step " + std::to_string(fault.step) + ": the next step of " +
           std::to_string(fault.sequences) + " or more sequences fails\n";
  }
  return out;
}

}  // namespace deepinfer::engine
