// Planning: time of plan_step() for each live sequence. A quarter of them decode, a quarter are
// prompts under way, the others wait.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "cache/layout.h"
#include "engine/scheduler.h"

namespace deepinfer::engine {
namespace {

std::vector<SchedulerEntry> sequences(size_t count, size_t users) {
  std::vector<SchedulerEntry> entries;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t context = i % 4 < 2 ? 100 + i % 4'000 : 0;
    entries.push_back({.index = i,
                       .phase = i % 4 == 0   ? Phase::decoding
                                : i % 4 == 1 ? Phase::prefilling
                                             : Phase::waiting,
                       .arrival = i,
                       .added_ns = static_cast<int64_t>(i) * 1'000'000,
                       .priority = static_cast<int>(i % 3) - 1,
                       .user = i % users,
                       .context = context,
                       .pending = i % 4 == 0 ? 1 : 50 + i * 7 % 2'000,
                       .pages = cache::pages_for(context),
                       .tokens_reserved = cache::pages_for(context) * cache::kTokensPerPage,
                       .restore_tokens = context});
  }
  return entries;
}

// Slots: 1: there are some, waiting ones are looked at; 0: there are none.
void BM_plan_step(benchmark::State& state) {
  const auto count = static_cast<size_t>(state.range(0));
  const std::vector<SchedulerEntry> entries = sequences(count, 10);
  const SchedulerBudget budget = {.rows = count / 4 + 512,
                                  .logits_rows = count / 4 + 512,
                                  .sequences = state.range(1) != 0 ? count : count / 2,
                                  .free_pages = count * 40,
                                  .target_seconds = 0.1};
  FairShare shares;
  for (uint64_t user = 0; user < 10; ++user) shares.charge(user, static_cast<double>(user), 1);
  StepCost cost;
  for (size_t rows : {1, 16, 128, 512, 2'048, 8'192}) {
    cost.observe(rows, 0, 0.01 + 1e-5 * static_cast<double>(rows));
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(plan_step(entries, budget, shares, cost, 20'000'000'000));
  }
  state.counters["ns_per_entry"] =
      benchmark::Counter(static_cast<double>(count), benchmark::Counter::kIsIterationInvariantRate |
                                                         benchmark::Counter::kInvert);
}
BENCHMARK(BM_plan_step)->ArgsProduct({{64, 1024, 16384}, {0, 1}})->ArgNames({"entries", "slots"});

}  // namespace
}  // namespace deepinfer::engine
