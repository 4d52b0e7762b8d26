// Prefix cache at 100k nodes: conversations of 4,096 tokens behind a shared head of 1,024. Rates
// are tokens' pages a second and, in the label, calls.
//
//   cache_bench

#include <benchmark/benchmark.h>

#include <vector>

#include "cache/prefix_cache.h"

namespace deepinfer::cache {
namespace {

constexpr size_t kHead = 1024, kTokens = 4096;
constexpr size_t kPagesEach = (kTokens - kHead) / kTokensPerPage;

struct Load {
  explicit Load(size_t pages)
      : pool(PagePool::create({.growing = {{"entries", 64}}, .frontier = {}}, pages).value()),
        prefixes(*pool, {}) {}

  static std::vector<int32_t> ids(int32_t conversation) {
    std::vector<int32_t> out(kTokens);
    for (size_t i = 0; i < kTokens; ++i) {
      out[i] = static_cast<int32_t>(i) + (i < kHead ? 0 : conversation * 7);
    }
    return out;
  }
  void know(const std::vector<int32_t>& key) {
    SequenceCache cache(pool.get());
    {
      const auto lease = prefixes.lookup({.ids = key}, kTokens);
      prefixes.restore(lease, cache).value();
    }
    cache.reserve(kTokens).value();
    cache.set_length(kTokens);
    prefixes.insert({.ids = key}, cache, kTokens);
  }
  std::unique_ptr<PagePool> pool;
  PrefixCache prefixes;
};

void rates(benchmark::State& state, size_t pages) {
  const auto calls = static_cast<double>(state.iterations());
  state.counters["calls/s"] = benchmark::Counter(calls, benchmark::Counter::kIsRate);
  state.counters["pages/s"] =
      benchmark::Counter(calls * static_cast<double>(pages), benchmark::Counter::kIsRate);
}

void lookup(benchmark::State& state) {
  const auto conversations = static_cast<int32_t>(state.range(0) / int64_t{kPagesEach});
  Load load(static_cast<size_t>(state.range(0)) + 100);
  std::vector<std::vector<int32_t>> keys;
  for (int32_t i = 0; i < conversations; ++i) load.know(Load::ids(i));
  for (int32_t i = 0; i < 500; ++i) keys.push_back(Load::ids(i * 7919 % conversations));
  size_t at = 0;
  for (auto _ : state) {
    const auto lease = load.prefixes.lookup({.ids = keys[at]}, kTokens);
    benchmark::DoNotOptimize(lease.matched());
    at = at + 1 == keys.size() ? 0 : at + 1;
  }
  rates(state, kTokens / kTokensPerPage);
}
BENCHMARK(lookup)->Arg(1000)->Arg(100000)->MinTime(0.5);

// Each sequence is new: pages are made free, computed (not here), and made known.
void insert_and_evict(benchmark::State& state) {
  Load load(static_cast<size_t>(state.range(0)));
  int32_t conversation = 0;
  const auto next = [&] {
    const auto key = Load::ids(conversation++);
    load.prefixes.make_free(kTokens / kTokensPerPage);
    load.know(key);
  };
  while (load.pool->free_count() > kTokens / kTokensPerPage) next();
  for (auto _ : state) next();
  rates(state, kPagesEach);
}
BENCHMARK(insert_and_evict)->Arg(1000)->Arg(100000)->MinTime(0.5);

void evict(benchmark::State& state) {
  const auto pages = static_cast<size_t>(state.range(0));
  for (auto _ : state) {
    state.PauseTiming();
    auto load = std::make_unique<Load>(pages);
    int32_t conversation = 0;
    while (load->pool->free_count() > kTokens / kTokensPerPage) {
      load->know(Load::ids(conversation++));
    }
    state.ResumeTiming();
    load->prefixes.make_free(pages);
    state.PauseTiming();
    load.reset();
    state.ResumeTiming();
  }
  rates(state, pages);
}
BENCHMARK(evict)->Arg(100000)->Iterations(3)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace deepinfer::cache
