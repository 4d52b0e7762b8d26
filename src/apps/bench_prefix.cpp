#include "apps/bench_prefix.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/bench_samples.h"
#include "apps/engine_load.h"
#include "base/progress.h"
#include "base/system.h"

namespace deepinfer::apps {
namespace {

constexpr size_t kShares[] = {50, 90, 96};  // per cent of a prompt
constexpr size_t kShortest = 512;
constexpr uint64_t kSnapshotBytes = uint64_t{1} << 30;

// A text of its own for every sample: prompts with equal ids share what was computed.
std::vector<int32_t> text_of(const weights::ModelConfig& config, size_t tokens, size_t text) {
  std::vector<int32_t> ids = spread_ids(config, tokens);
  for (size_t i = 1; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>((static_cast<size_t>(ids[i]) + (text + 1) * 6101 + i / 97) %
                                  config.vocab);
  }
  return ids;
}

struct FirstToken {
  double ms = 0;
  engine::RequestStats stats;
};

class PrefixSampler {
 public:
  static Result<PrefixSampler> create(llm::Llm& llm, kernels::Isa isa, size_t tokens) {
    engine::Engine::Options options;
    options.max_sequences = 2;
    options.context = tokens + 2;
    options.prefix_cache = true;
    options.snapshot_bytes = kSnapshotBytes;
    options.identity = {1, 1};  // nothing outlives this engine
    options.mode = engine::LoopMode::overlapped;
    options.isa = isa;
    options.pool = &llm.pool();
    const uint64_t page = llm.model().cache_layout().page_bytes();
    options.cache_bytes = 4 * page * cache::pages_for(tokens + 2);
    return PrefixSampler(TRY(EngineLoad::create(llm.model(), options)));
  }

  Result<FirstToken> run(std::vector<int32_t> prompt, engine::Resume resume,
                         std::vector<size_t> points) {
    const uint64_t id = next_++;
    TRY(load_.add({.id = id,
                   .prompt = std::move(prompt),
                   .max_tokens = 1,
                   .ignore_eos = true,
                   .resume = resume,
                   .resume_points = std::move(points)}));
    TRY(load_.finish());
    const EngineLoad::Track& track = load_.track(id);
    return FirstToken{static_cast<double>(track.token_ns.front() - track.added_ns) / 1e6,
                      track.stats};
  }

 private:
  explicit PrefixSampler(EngineLoad load) : load_(std::move(load)) {}
  EngineLoad load_;
  uint64_t next_ = 1;
};

struct Sampled {
  std::vector<double> values;
  double cached = 0;
  std::string resume;
};

Measured result_of(const std::string& name, const std::string& unit, const Sampled& sampled) {
  Measured result;
  result.name = name + " " + sampled.resume;
  result.unit = unit;
  result.spread = spread_of(sampled.values);
  result.details = {{"cached_tokens", sampled.cached}};
  return result;
}

class PrefixBench {
 public:
  PrefixBench(llm::Llm& llm, kernels::Isa isa, size_t tokens) : llm_(llm), isa_(isa) {
    tokens_ = std::min<size_t>(tokens, llm.model().config().context - 2);
    for (size_t length = std::min(kShortest, tokens_); length <= tokens_; length *= 2) {
      lengths_.push_back(length);
    }
    ratios_.resize(std::size(kShares));
    resumes_.resize(lengths_.size());
  }

  size_t tokens() const { return tokens_; }

  Result<void> round(size_t round, engine::Resume resume) {
    PrefixSampler sampler = TRY(PrefixSampler::create(llm_, isa_, tokens_));
    const std::vector<int32_t> text = text_of(llm_.model().config(), tokens_, 100 * round);
    std::vector<size_t> points;
    for (const size_t share : kShares) points.push_back(tokens_ * share / 100);
    const FirstToken cold = TRY(sampler.run(text, engine::Resume::exact, points));
    for (size_t i = 0; i < std::size(kShares); ++i) {
      const size_t head = tokens_ * kShares[i] / 100;
      std::vector<int32_t> other = text_of(llm_.model().config(), tokens_, 100 * round + 1 + i);
      std::copy_n(text.begin(), head, other.begin());
      const FirstToken warm = TRY(sampler.run(std::move(other), resume, {}));
      take(ratios_[i], cold.ms / warm.ms, warm.stats);
    }
    for (size_t i = 0; i < lengths_.size(); ++i) {
      const std::vector<int32_t> again =
          text_of(llm_.model().config(), lengths_[i], 100 * round + 50 + i);
      TRY(sampler.run(again, engine::Resume::exact, {}));
      const FirstToken warm = TRY(sampler.run(again, resume, {}));
      take(resumes_[i], warm.ms, warm.stats);
    }
    return {};
  }

  void report(std::vector<Measured>& results) const {
    for (size_t i = 0; i < std::size(kShares); ++i) {
      Measured result = result_of(fmt::format("prefix {}", kShares[i]), "times", ratios_[i]);
      result.limit =
          static_cast<double>(tokens_) / (static_cast<double>(tokens_) - ratios_[i].cached);
      result.limit_name =
          fmt::format("times by rows: {:.0f} of {} tokens were cached", ratios_[i].cached, tokens_);
      results.push_back(std::move(result));
    }
    for (size_t i = 0; i < lengths_.size(); ++i) {
      results.push_back(result_of(fmt::format("prefix resume {}", lengths_[i]), "ms", resumes_[i]));
    }
  }

 private:
  static void take(Sampled& sampled, double value, const engine::RequestStats& stats) {
    sampled.values.push_back(value);
    sampled.cached = static_cast<double>(stats.cached_tokens);
    sampled.resume = stats.resume;
  }

  llm::Llm& llm_;
  kernels::Isa isa_;
  size_t tokens_ = 0;
  std::vector<size_t> lengths_;
  std::vector<Sampled> ratios_;   // [kShares]
  std::vector<Sampled> resumes_;  // [lengths_]
};

}  // namespace

Result<std::vector<Measured>> measure_prefix(llm::Llm& llm, kernels::Isa isa, size_t rounds,
                                             size_t tokens, bool show_progress,
                                             const InterruptScope& interrupt) {
  std::vector<engine::Resume> kinds = {engine::Resume::exact};
  if (llm.model().bounded_replay() > 0) kinds.push_back(engine::Resume::replay);
  TRY(sample_prefill(llm));  // touches memory, is not counted
  Progress bar("bench prefix", rounds * kinds.size(), Progress::Unit::count, show_progress);
  size_t done = 0;
  std::vector<Measured> results;
  const LoadSampler load;
  for (const engine::Resume kind : kinds) {
    PrefixBench bench(llm, isa, tokens);
    for (size_t round = 0; round < rounds; ++round) {
      if (interrupt.interrupted()) {
        return Error{ErrorKind::cancelled, "bench prefix", "stopped", ""};
      }
      TRY(bench.round(round, kind));
      bar.update(++done);
    }
    bench.report(results);
  }
  const MachineLoad seen = load.sample();
  for (Measured& result : results) result.load = seen.others + seen.stolen;
  return results;
}

}  // namespace deepinfer::apps
