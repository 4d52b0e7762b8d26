#include "apps/bench_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "apps/bench_samples.h"
#include "apps/engine_load.h"
#include "base/progress.h"
#include "base/system.h"
#include "models/plan/step_work.h"

namespace deepinfer::apps {
namespace {

constexpr size_t kPrompt = 32;
constexpr size_t kTokens = 64;

struct Streams {
  size_t count = 0;
  std::vector<double> speeds;  // tokens/s of all together
  std::vector<double> others;
};

// Prompts of different ids, so that experts are chosen as by different texts.
std::vector<int32_t> prompt_of(const weights::ModelConfig& config, size_t stream) {
  std::vector<int32_t> ids = spread_ids(config, kPrompt);
  for (size_t i = 1; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>((static_cast<size_t>(ids[i]) + stream * 7919) % config.vocab);
  }
  return ids;
}

// From the first token of the last stream to the last token of the first one.
Result<double> sample_streams(llm::Llm& llm, kernels::Isa isa, size_t count) {
  engine::Engine::Options options;
  options.max_sequences = count;
  options.context = std::min<size_t>(kPrompt + kTokens + 1, llm.model().config().context);
  options.mode = engine::LoopMode::overlapped;
  options.isa = isa;
  options.pool = &llm.pool();
  EngineLoad load = TRY(EngineLoad::create(llm.model(), options));
  for (size_t stream = 0; stream < count; ++stream) {
    TRY(load.add({.id = stream,
                  .prompt = prompt_of(llm.model().config(), stream),
                  .max_tokens = kTokens,
                  .ignore_eos = true}));
  }
  TRY(load.finish());
  int64_t begin = 0, end = std::numeric_limits<int64_t>::max();
  for (size_t stream = 0; stream < count; ++stream) {
    begin = std::max(begin, load.track(stream).token_ns.front());
    end = std::min(end, load.track(stream).token_ns.back());
  }
  size_t tokens = 0;
  for (size_t stream = 0; stream < count; ++stream) {
    tokens += static_cast<size_t>(std::ranges::count_if(
        load.track(stream).token_ns, [&](int64_t ns) { return ns > begin && ns <= end; }));
  }
  return static_cast<double>(tokens) / std::max(1e-9, static_cast<double>(end - begin) * 1e-9);
}

Measured result_of(const Streams& streams, double one_stream, double prefill,
                   double operations_per_token, const MachineLimits& limits) {
  Measured result;
  result.name = fmt::format("batch {}", streams.count);
  result.unit = "tokens/s";
  result.spread = spread_of(streams.speeds);
  result.load = spread_of(streams.others).median;
  result.limit = prefill;
  result.limit_name = "tokens/s of one prompt of 512";
  const double operations = operations_per_token * result.spread.median;
  result.details = {{"streams", static_cast<double>(streams.count)},
                    {"times_one_stream", result.spread.median / one_stream},
                    {"prefill_tokens_per_second", prefill},
                    {"operations_per_second", operations}};
  result.notes.push_back(
      fmt::format("{:.2f} times the first count of streams", result.spread.median / one_stream));
  if (limits.f32 > 0) {
    result.details.push_back({"share_of_f32_peak", operations / limits.f32});
    result.notes.push_back(
        fmt::format("{:.1f} GOP/s: {:.0f} % of the fp32 fma peak, {:.0f} % of the int8 one",
                    operations / 1e9, 100 * operations / limits.f32,
                    limits.int8_unsigned > 0 ? 100 * operations / limits.int8_unsigned : 0));
  }
  return result;
}

}  // namespace

Result<std::vector<Measured>> measure_batch(llm::Llm& llm, kernels::Isa isa, size_t rounds,
                                            const std::vector<size_t>& stream_counts,
                                            const MachineLimits& limits, bool show_progress,
                                            const InterruptScope& interrupt) {
  const models::PlannedModel planned = TRY(models::planned_from_checkpoint(llm.checkpoint()));
  const double operations =
      models::StepEstimator(planned.config).token(kPrompt + kTokens / 2).operations();
  std::vector<Streams> all;
  for (const size_t count : stream_counts) all.push_back({count, {}, {}});
  std::vector<double> prefills;
  TRY(sample_streams(llm, isa, 1));  // touches memory, is not counted
  Progress bar("bench batch", rounds * all.size(), Progress::Unit::count, show_progress);
  size_t done = 0;
  for (size_t round = 0; round < rounds; ++round) {
    prefills.push_back(TRY(sample_prefill(llm)));
    for (Streams& streams : all) {
      if (interrupt.interrupted()) {
        return Error{ErrorKind::cancelled, "bench batch", "stopped", ""};
      }
      const LoadSampler load;
      streams.speeds.push_back(TRY(sample_streams(llm, isa, streams.count)));
      const MachineLoad seen = load.sample();
      streams.others.push_back(seen.others + seen.stolen);
      bar.update(++done);
    }
  }
  std::vector<Measured> results;
  const double one = spread_of(all.front().speeds).median;
  for (const Streams& streams : all) {
    results.push_back(result_of(streams, one, spread_of(prefills).median, operations, limits));
  }
  return results;
}

}  // namespace deepinfer::apps
