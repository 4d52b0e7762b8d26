#include "apps/bench_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "apps/bench_samples.h"
#include "apps/engine_load.h"
#include "base/clock.h"
#include "base/progress.h"
#include "base/system.h"

namespace deepinfer::apps {
namespace {

constexpr size_t kCounts[] = {1, 16, 64};
constexpr size_t kSteps = 200;
constexpr size_t kPrompt = 8;
constexpr int64_t kFakeStepNs = 1'000'000;
constexpr size_t kFakeVocab = 32'000;
constexpr size_t kStreams = 16;
constexpr size_t kStreamTokens = 160;
constexpr size_t kLongPrompt = 2048;
constexpr double kPromptLoad = 1.0 / 3;

// Computes nothing for a millisecond.
class FakeModel final : public models::Model {
 public:
  FakeModel() {
    config_.vocab = kFakeVocab;
    config_.context = kPrompt + kSteps + 2;
    layout_.growing = {{"nothing", 64}};
    logits_.resize(kFakeVocab);
    for (size_t i = 0; i < kFakeVocab; ++i)
      logits_[i] = static_cast<float>(i * 7919 % 1000) * 1e-3f;
  }
  const weights::ModelConfig& config() const override { return config_; }
  const cache::CacheLayout& cache_layout() const override { return layout_; }
  size_t weight_bytes_per_step() const override { return 0; }
  size_t resident_bytes() const override { return 0; }
  const std::vector<kernels::Choice>& choices() const override { return choices_; }
  void set_profiling(bool) override {}
  std::vector<models::OperationTime> take_profile() override { return {}; }
  Result<void> forward(const models::StepBatch& batch, models::StepOutput& output) override {
    const int64_t end = system_clock().now_ns() + kFakeStepNs;
    output.wanted_rows = static_cast<size_t>(std::ranges::count(batch.want_logits, 1));
    const size_t bytes = std::max<size_t>(output.wanted_rows, 1) * kFakeVocab * sizeof(float);
    if (output.logits.size() < bytes) {
      output.logits = TRY(Buffer::create(bytes));
      for (size_t row = 0; row < output.wanted_rows; ++row) {
        std::ranges::copy(logits_, output.logits.as<float>() + row * kFakeVocab);
      }
    }
    while (system_clock().now_ns() < end) {
    }
    return {};
  }

 private:
  weights::ModelConfig config_;
  cache::CacheLayout layout_;
  std::vector<kernels::Choice> choices_;
  std::vector<float> logits_;  // [kFakeVocab]
};

struct Setup {
  models::Model* model = nullptr;
  kernels::Isa isa = kernels::Isa::ref;
  ThreadPool* pool = nullptr;
  engine::LoopMode mode = engine::LoopMode::overlapped;

  engine::Engine::Options options() const {
    engine::Engine::Options options;
    options.mode = mode;
    options.isa = isa;
    options.pool = pool;
    return options;
  }
};

struct LoopCost {
  std::vector<double> bubble_percent, sample_percent, plan_ns, step_ms, others;
};

// Steps in which all sequences decode.
Result<void> sample_loop(const Setup& setup, size_t count, LoopCost& cost) {
  engine::Engine::Options options = setup.options();
  options.max_sequences = count;
  const size_t steps = std::min<size_t>(kSteps, setup.model->config().context - kPrompt - 1);
  options.context = kPrompt + steps + 1;
  EngineLoad load = TRY(EngineLoad::create(*setup.model, options));
  for (size_t i = 0; i < count; ++i) {
    TRY(load.add({.id = i,
                  .prompt = spread_ids(setup.model->config(), kPrompt),
                  .sampling = {.want_logprob = false},
                  .max_tokens = steps,
                  .ignore_eos = true}));
  }
  const auto all_decode = [&] { return !load.track(count - 1).token_ns.empty(); };
  while (!all_decode() && load.busy()) TRY(load.step());
  const engine::Engine::StepCounters before = load.engine().counters();
  const int64_t begin = system_clock().now_ns();
  const LoadSampler others;
  TRY(load.finish());
  const double seconds = seconds_of(system_clock().now_ns() - begin);
  const engine::Engine::StepCounters& after = load.engine().counters();
  const double made = static_cast<double>(after.steps - before.steps);
  const double computing = after.compute_seconds - before.compute_seconds;
  const double sampling = after.sample_seconds - before.sample_seconds;
  cost.bubble_percent.push_back(100 * std::max(0.0, 1 - (computing + sampling) / seconds));
  cost.sample_percent.push_back(100 * sampling / seconds);
  cost.plan_ns.push_back(1e9 * (after.plan_seconds - before.plan_seconds) / made /
                         static_cast<double>(count));
  cost.step_ms.push_back(1e3 * seconds / made);
  const MachineLoad seen = others.sample();
  cost.others.push_back(seen.others + seen.stolen);
  return {};
}

std::string loop_name(const Setup& setup, bool fake, size_t count) {
  return fmt::format("engine {} {} {}", fake ? "1 ms" : "model",
                     setup.mode == engine::LoopMode::plain ? "plain" : "overlapped", count);
}

Measured result_of(std::string name, const LoopCost& cost) {
  Measured result;
  result.name = std::move(name);
  result.unit = "% bubble";
  result.spread = spread_of(cost.bubble_percent);
  result.load = spread_of(cost.others).median;
  const double plan = spread_of(cost.plan_ns).median;
  const double step = spread_of(cost.step_ms).median;
  const double sampling = spread_of(cost.sample_percent).median;
  result.details = {
      {"plan_ns_per_sequence", plan}, {"step_ms", step}, {"sample_percent", sampling}};
  result.notes = {fmt::format("planning {:.0f} ns a sequence, a step {:.3f} ms, {:.1f} % sampling",
                              plan, step, sampling)};
  return result;
}

Result<void> measure_loops(llm::Llm& llm, kernels::Isa isa, size_t rounds, bool show_progress,
                           const InterruptScope& interrupt, std::vector<Measured>& results) {
  FakeModel fake;
  Progress bar("bench engine", 2 * 2 * std::size(kCounts), Progress::Unit::count, show_progress);
  size_t done = 0;
  for (models::Model* model : {static_cast<models::Model*>(&fake), &llm.model()}) {
    for (const auto mode : {engine::LoopMode::plain, engine::LoopMode::overlapped}) {
      const Setup setup = {.model = model, .isa = isa, .pool = &llm.pool(), .mode = mode};
      for (const size_t count : kCounts) {
        LoopCost cost;
        for (size_t round = 0; round < rounds; ++round) {
          if (interrupt.interrupted()) {
            return Error{ErrorKind::cancelled, "bench engine", "stopped", ""};
          }
          TRY(sample_loop(setup, count, cost));
        }
        results.push_back(result_of(loop_name(setup, model == &fake, count), cost));
        bar.update(++done);
      }
    }
  }
  return {};
}

// --- Mixed load ----------------------------------------------------------------------------------

struct Mixed {
  double p99_over_median = 0, median_ms = 0, p99_ms = 0, most_ms = 0;
  double tokens_per_second = 0;
  size_t prompts = 0;  // that were read meanwhile
};

class MixedLoad {
 public:
  MixedLoad(const Setup& setup, double prefill_speed) : setup_(setup) {
    const size_t context = setup.model->config().context;
    prompt_ = std::min(kLongPrompt, context / 2);
    tokens_ = std::min(kStreamTokens, context - kPrompt - 1);
    mean_gap_ns_ = static_cast<double>(prompt_) / prefill_speed / kPromptLoad * 1e9;
  }

  // with_prompts: false measures the streams alone.
  Result<Mixed> sample(bool with_prompts, double target_ms, uint64_t seed,
                       const InterruptScope& interrupt) const {
    engine::Engine::Options options = setup_.options();
    options.max_sequences = kStreams + 8;
    options.context = std::max(prompt_ + 2, kPrompt + tokens_ + 1);
    options.target_step_ms = target_ms;
    EngineLoad load = TRY(EngineLoad::create(*setup_.model, options));
    std::vector<uint64_t> streams;
    for (uint64_t id = 0; id < kStreams; ++id) {
      streams.push_back(id);
      TRY(load.add({.id = id,
                    .prompt = spread_ids(setup_.model->config(), kPrompt),
                    .max_tokens = tokens_,
                    .ignore_eos = true}));
    }
    std::mt19937_64 random(seed);
    const auto gap_ns = [&] {
      const double u = static_cast<double>(random() >> 11) * 0x1p-53;
      return static_cast<int64_t>(-std::log(1 - u) * mean_gap_ns_);
    };
    int64_t next_ns = system_clock().now_ns() + gap_ns();
    Mixed mixed;
    const auto all_ended = [&] {
      return std::ranges::all_of(
          streams, [&](uint64_t id) { return load.track(id).token_ns.size() == tokens_; });
    };
    while (!all_ended()) {
      if (interrupt.interrupted()) {
        return Error{ErrorKind::cancelled, "bench engine", "stopped", ""};
      }
      for (; with_prompts && system_clock().now_ns() >= next_ns; next_ns += gap_ns()) {
        TRY(load.add({.id = kStreams + mixed.prompts++,
                      .prompt = spread_ids(setup_.model->config(), prompt_),
                      .max_tokens = 1,
                      .ignore_eos = true}));
      }
      TRY(load.step());
    }
    return summed(load, streams, mixed);
  }

  size_t prompt() const { return prompt_; }

 private:
  static Mixed summed(const EngineLoad& load, const std::vector<uint64_t>& streams, Mixed mixed) {
    const std::vector<double> gaps = token_gaps_ms(load, streams);
    mixed.median_ms = quantile(gaps, 0.5);
    mixed.p99_ms = quantile(gaps, 0.99);
    mixed.most_ms = gaps.back();
    mixed.p99_over_median = mixed.p99_ms / mixed.median_ms;
    int64_t begin = INT64_MAX, end = 0;
    for (const uint64_t id : streams) {
      begin = std::min(begin, load.track(id).token_ns.front());
      end = std::max(end, load.track(id).token_ns.back());
    }
    mixed.tokens_per_second = static_cast<double>(gaps.size()) / seconds_of(end - begin);
    return mixed;
  }

  const Setup& setup_;
  size_t prompt_ = 0, tokens_ = 0;
  double mean_gap_ns_ = 0;
};

Result<Measured> measure_mixed(llm::Llm& llm, const Setup& setup, size_t rounds, double target_ms,
                               const InterruptScope& interrupt) {
  const MixedLoad mixed(setup, TRY(sample_prefill(llm)));
  std::vector<double> ratios, medians, p99s, mosts, losses, prompts;
  const LoadSampler others;
  double target = target_ms;
  for (size_t round = 0; round < rounds; ++round) {
    const Mixed alone = TRY(mixed.sample(false, 0, round, interrupt));
    if (target_ms <= 0) target = 3 * alone.median_ms;
    const Mixed with = TRY(mixed.sample(true, target, round + 1, interrupt));
    ratios.push_back(with.p99_over_median);
    medians.push_back(with.median_ms);
    p99s.push_back(with.p99_ms);
    mosts.push_back(with.most_ms);
    losses.push_back(1 - with.tokens_per_second / alone.tokens_per_second);
    prompts.push_back(static_cast<double>(with.prompts));
  }
  const MachineLoad seen = others.sample();
  Measured result;
  result.name = "engine mixed";
  result.unit = "times the median gap at p99";
  result.spread = spread_of(ratios);
  result.load = seen.others + seen.stolen;
  const auto middle = [](const std::vector<double>& values) { return spread_of(values).median; };
  result.details = {{"median_gap_ms", middle(medians)}, {"p99_gap_ms", middle(p99s)},
                    {"longest_gap_ms", middle(mosts)},  {"throughput_loss", middle(losses)},
                    {"prompts", middle(prompts)},       {"target_step_ms", target}};
  result.notes = {fmt::format(
      "16 streams, gaps {:.1f} ms median, {:.1f} ms p99, {:.1f} ms at most; {:.0f} prompts of {} "
      "tokens came meanwhile and took {:.0f} % of the streams' tokens/s; steps of {:.0f} ms wanted",
      middle(medians), middle(p99s), middle(mosts), middle(prompts), mixed.prompt(),
      100 * middle(losses), target)};
  return result;
}

}  // namespace

Result<std::vector<Measured>> measure_engine(llm::Llm& llm, kernels::Isa isa, size_t rounds,
                                             EngineParts parts, double target_step_ms,
                                             bool show_progress, const InterruptScope& interrupt) {
  std::vector<Measured> results;
  if (parts == EngineParts::all) {
    TRY(measure_loops(llm, isa, rounds, show_progress, interrupt, results));
  }
  const Setup setup = {.model = &llm.model(), .isa = isa, .pool = &llm.pool()};
  results.push_back(TRY(measure_mixed(llm, setup, rounds, target_step_ms, interrupt)));
  return results;
}

}  // namespace deepinfer::apps
