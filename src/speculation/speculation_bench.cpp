// What drafting costs beside a step: a look-up and a commit per token at several lengths, and a
// verified row over the vocabulary of DeepSeek V4. One thread.

#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "speculation/draft_gate.h"
#include "speculation/ngram_drafter.h"
#include "speculation/verifier.h"

namespace deepinfer::speculation {
namespace {

constexpr size_t kVocab = 129280;

std::vector<int32_t> random_ids(size_t count) {
  std::mt19937 random(1);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 5000);
  return ids;
}

void ngram_step(benchmark::State& state) {
  std::vector<int32_t> ids = random_ids(static_cast<size_t>(state.range(0)));
  NgramDrafter drafter(5);
  drafter.committed(1, ids);
  Draft draft;
  std::mt19937 random(2);
  for (auto _ : state) {
    ids.push_back(static_cast<int32_t>(random() % 5000));
    DraftTask task = {.sequence = 1, .ids = ids, .most = 5, .draft = &draft};
    benchmark::DoNotOptimize(drafter.draft({&task, 1}).ok());
  }
  state.counters["index_kB"] = static_cast<double>(drafter.index_bytes(1)) / 1024;
}
BENCHMARK(ngram_step)->Arg(1000)->Arg(30000)->Arg(1000000);

void ngram_prompt(benchmark::State& state) {
  const std::vector<int32_t> ids = random_ids(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    NgramDrafter drafter(5);
    drafter.committed(1, ids);
    benchmark::DoNotOptimize(drafter.index_bytes(1));
  }
  state.counters["ns/token"] = benchmark::Counter(
      static_cast<double>(ids.size()) * 1e-9,
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(ngram_prompt)->Arg(2000)->Arg(100000);

void gate_step(benchmark::State& state) {
  DraftGate gate;
  size_t step = 0;
  for (auto _ : state) {
    const size_t drafted = gate.drafts(5, 0.2);
    gate.observe(drafted, drafted > 0 ? ++step % (drafted + 1) : 0);
  }
}
BENCHMARK(gate_step);

// range(0): 0 sample match, 1 stochastic with a certain draft, 2 with the drafter's distribution.
void verify_row(benchmark::State& state) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> logits(kVocab), log_q(kVocab);
  for (float& x : logits) x = normal(random);
  for (int i = 0; i < 8; ++i) logits[random() % kVocab] = 14.0f + static_cast<float>(i) * 0.5f;
  for (size_t i = 0; i < kVocab; ++i) log_q[i] = logits[i] - 18.0f;
  const sampling::Parameters parameters = {
      .temperature = 0.8f, .top_p = 0.95f, .want_logprob = false};
  sampling::Workspace workspace;
  VerifyRow row = {.sample = {.isa = kernels::choose_isa("auto").value(), .logits = logits},
                   .draft = 17};
  if (state.range(0) == 2) row.draft_log_probabilities = log_q;
  const Acceptance rule = state.range(0) == 0 ? Acceptance::sample_match : Acceptance::stochastic;
  for (auto _ : state) {
    ++row.sample.position;
    benchmark::DoNotOptimize(verify(rule, row, parameters, workspace).value().token.id);
  }
  state.counters["rows/s"] = benchmark::Counter(1, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(verify_row)->Arg(0)->Arg(1)->Arg(2);

}  // namespace
}  // namespace deepinfer::speculation
