// Index scores: GOP/s (two per head, value and entry) and their share of the measured limit: int8
// products for q4u keys, FMA for bf16 and f32. Selection: scores per second.

#include "kernels/attention/indexer.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "kernels/limits.h"

namespace deepinfer::kernels {
namespace {

ThreadPool& pool() {
  static const auto made = ThreadPool::create({}).value();
  return *made;
}

const Limits& limits(Isa isa) {
  static std::vector<Limits> measured(4);
  Limits& out = measured[static_cast<size_t>(isa)];
  if (out.threads == 0) out = measure_limits(pool(), isa, 0.1).value();
  return out;
}

struct Shape {
  const char* name;
  IndexShape index;
};

// One sequence's keys and the queries of its last rows.
struct Keys {
  Keys(const IndexShape& shape, size_t entries, size_t rows)
      : bytes((entries + shape.entries_per_page) * shape.keys.row_bytes()),
        query(rows * shape.heads * shape.keys.width),
        weights(rows * shape.heads, 0.5f),
        scores(rows * entries) {
    std::mt19937 random(1);
    for (size_t i = 0; i < bytes.size(); ++i) {
      // Codes and scales of ordinary size; as bf16 or f32 every value is near 0.7.
      const bool scale =
          shape.keys.code == LatentCode::q4u && i % shape.keys.row_bytes() >= shape.keys.width / 2;
      const bool codes = shape.keys.code == LatentCode::q4u;
      bytes.data()[i] = static_cast<std::byte>(scale   ? 120 + random() % 8
                                               : codes ? random()
                                                       : 0x3F);
    }
    for (float& value : query) value = static_cast<float>(random() % 9) - 4.0f;
    const size_t page_bytes = shape.entries_per_page * shape.keys.row_bytes();
    for (size_t at = 0; at + page_bytes <= bytes.size(); at += page_bytes) {
      pages.push_back(bytes.data() + at);
    }
    for (size_t r = 0; r < rows; ++r) {
      queries.push_back({.query = query.data() + r * shape.heads * shape.keys.width,
                         .weights = weights.data() + r * shape.heads,
                         .pages = pages.data(),
                         .visible = entries,
                         .scores = scores.data() + r * entries});
    }
  }
  Buffer bytes;
  std::vector<const std::byte*> pages;
  std::vector<float> query, weights, scores;
  std::vector<IndexQuery> queries;
};

void score(benchmark::State& state, Isa isa, IndexShape shape, size_t entries, size_t rows) {
  Keys keys(shape, entries, rows);
  double seconds = 0.0, best = 1e9;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    index_scores(pool(), isa, shape, keys.queries);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    state.SetIterationTime(took.count());
    seconds += took.count();
    best = std::min(best, took.count());
  }
  const double scores = static_cast<double>(entries * rows);
  const double operations = 2.0 * scores * static_cast<double>(shape.heads * shape.keys.width);
  const bool codes = shape.keys.code == LatentCode::q4u;
  const double limit = codes ? limits(isa).int8_unsigned.all_threads : limits(isa).f32.all_threads;
  state.counters["GOP/s"] = operations * static_cast<double>(state.iterations()) / seconds * 1e-9;
  state.counters["best"] = operations / best * 1e-9;
  state.counters["share"] = operations / best / limit;
  state.counters["key GB/s"] = scores * static_cast<double>(shape.keys.row_bytes()) / best * 1e-9;
}

enum class Order { random, rising, equal };

void select(benchmark::State& state, Order order, size_t count, size_t k) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> scores(count);
  for (size_t i = 0; i < count; ++i) {
    scores[i] = order == Order::random   ? normal(random)
                : order == Order::rising ? static_cast<float>(i)
                                         : 1.0f;
  }
  std::vector<uint32_t> out(k);
  for (auto _ : state) {
    benchmark::DoNotOptimize(select_top(scores.data(), count, k, out.data()));
  }
  state.counters["Gscore/s"] = benchmark::Counter(static_cast<double>(count) * 1e-9,
                                                  benchmark::Counter::kIsIterationInvariantRate);
}

void candidates(benchmark::State& state, size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> scores(count);
  for (float& value : scores) value = normal(random);
  std::vector<uint32_t> blocks(2048), out(512);
  for (auto _ : state) {
    const size_t kept = select_blocks(scores.data(), count, 8, blocks.size(), blocks.data());
    benchmark::DoNotOptimize(select_top_in_blocks(scores.data(), count, out.size(), 8,
                                                  std::span(blocks.data(), kept), out.data()));
  }
}

int register_all() {
  const Shape shapes[] = {
      {"v41", {.heads = 32, .keys = {LatentCode::q4u, 128, 0}, .entries_per_page = 128}},
      {"v4", {.heads = 64, .keys = {LatentCode::q4u, 128, 0}, .entries_per_page = 32}},
      {"bf16", {.heads = 64, .keys = {LatentCode::bf16, 128, 0}, .entries_per_page = 128}},
      {"f32", {.heads = 32, .keys = {LatentCode::f32, 128, 0}, .entries_per_page = 128}}};
  std::vector<Isa> isas;
  if (cpu_features().avx512_vnni) isas.push_back(Isa::avx512);
  if (cpu_features().avx2) isas.push_back(Isa::avx2);
  const auto add = [](std::string name, auto function, auto... arguments) {
    return benchmark::RegisterBenchmark(name.c_str(), function, arguments...)
        ->Unit(benchmark::kMicrosecond);
  };
  for (Isa isa : isas) {
    for (const Shape& shape : shapes) {
      const std::string name =
          "index_scores/" + std::string(isa_name(isa)) + "/" + shape.name + "/";
      for (size_t entries : {size_t{512}, size_t{8192}, size_t{65536}}) {
        add(name + std::to_string(entries), score, isa, shape.index, entries, 1)->UseManualTime();
      }
      add(name + "8192x64rows", score, isa, shape.index, 8192, 64)->UseManualTime();
    }
  }
  for (size_t count : {size_t{8192}, size_t{65536}, size_t{1} << 20}) {
    const std::string tail = std::to_string(count);
    add("select_top/random/" + tail, select, Order::random, count, 512);
    add("select_top/rising/" + tail, select, Order::rising, count, 512);
    add("select_top/equal/" + tail, select, Order::equal, count, 512);
    add("candidates/" + tail, candidates, count);
  }
  return 0;
}

const int kRegistered = register_all();

}  // namespace
}  // namespace deepinfer::kernels
