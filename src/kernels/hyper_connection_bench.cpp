// Hyper-connections of V4.1 (4 streams of 5120): mixes with the weights of many sublayers one after
// the other, as a model reads them (GB/s of fn and its share of the memory bandwidth; GFLOP/s and
// their share of the FMA peak), and the row functions on rows in the cache. Then the router.

#include "kernels/hyper_connection.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "kernels/limits.h"
#include "kernels/router.h"

namespace deepinfer::kernels {
namespace {

constexpr HyperShape kShape{.streams = 4, .hidden = 5120};
constexpr size_t kWidth = kShape.streams * kShape.hidden;
constexpr size_t kOutputs = 24;

ThreadPool& pool() {
  static const auto made = ThreadPool::create({}).value();
  return *made;
}

double fma_peak(Isa isa) {
  static double peaks[4] = {};
  double& peak = peaks[static_cast<size_t>(isa)];
  if (peak == 0.0) peak = measure_fma_peak(pool(), isa, 0.3).all_threads;
  return peak;
}

double bandwidth(Isa isa) {
  static const BandwidthProbe probe = BandwidthProbe::create(pool()).value();
  double best = 0.0;
  for (int i = 0; i < 3; ++i) best = std::max(best, probe.measure(pool(), isa));
  return best;
}

void mix(benchmark::State& state, Isa isa, size_t rows) {
  const size_t sublayers = rows == 1 ? 400 : 2;  // 780 MB leave every cache
  Buffer fn(sublayers * kOutputs * kWidth * sizeof(float));
  for (size_t i = 0; i < fn.size() / 4; ++i) fn.as<float>()[i] = 0.01f * static_cast<float>(i % 7);
  const std::vector<float> base(kOutputs, 0.1f), scale(3, 0.5f);
  std::vector<float> streams(rows * kWidth);
  for (size_t i = 0; i < streams.size(); ++i) streams[i] = static_cast<float>(i % 13) - 6.0f;
  std::vector<HyperMix> mixes(rows);
  double best = 1e9;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < sublayers; ++i) {
      const HyperWeights weights{
          .fn = fn.as<float>() + i * kOutputs * kWidth, .base = base.data(), .scale = scale.data()};
      hyper_mix(pool(), isa, kShape, weights, streams.data(), rows, mixes.data());
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    state.SetIterationTime(took.count());
    best = std::min(best, took.count());
  }
  const double calls = static_cast<double>(sublayers);
  const double bytes = calls * static_cast<double>(kOutputs * kWidth * sizeof(float));
  const double operations = calls * 2.0 * static_cast<double>(kOutputs * kWidth * rows);
  state.counters["us/call"] = best / calls * 1e6;
  state.counters["GB/s"] = bytes / best * 1e-9;
  state.counters["share"] =
      rows == 1 ? bytes / best / bandwidth(isa) : operations / best / fma_peak(isa);
}

// Rows of 80 KB: two of them and f lie in L2.
void collapse(benchmark::State& state, Isa isa) {
  const std::vector<float> streams(kWidth, 0.5f), pre(kShape.streams, 0.3f);
  std::vector<float> out(kShape.hidden);
  for (auto _ : state) {
    hyper_row_ops(isa).collapse(streams.data(), pre.data(), kShape.streams, kShape.hidden,
                                out.data());
    benchmark::ClobberMemory();
  }
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>((kWidth + kShape.hidden) * sizeof(float)) * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate);
}

void expand(benchmark::State& state, Isa isa) {
  std::vector<float> streams(kWidth, 0.5f), f(kShape.hidden, 0.1f);
  HyperMix mix;
  mix.comb.fill(0.25f);  // a stream keeps its size
  for (auto _ : state) {
    hyper_row_ops(isa).expand(streams.data(), f.data(), mix, kShape.streams, kShape.hidden);
    benchmark::ClobberMemory();
  }
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>((2 * kWidth + kShape.hidden) * sizeof(float)) * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate);
}

void route(benchmark::State& state, RouterShape shape) {
  std::vector<float> logits(shape.experts), bias(shape.experts, 0.1f), weights(shape.per_token);
  for (size_t i = 0; i < shape.experts; ++i) {
    logits[i] = static_cast<float>(i * 7919 % 1009) * 0.01f - 5.0f;
  }
  std::vector<int32_t> chosen(shape.per_token);
  for (auto _ : state) {
    route_row(shape, logits.data(), bias.data(), nullptr, chosen.data(), weights.data());
    benchmark::ClobberMemory();
  }
}

int register_all() {
  std::vector<Isa> isas;
  if (cpu_features().avx512_vnni) isas.push_back(Isa::avx512);
  if (cpu_features().avx2) isas.push_back(Isa::avx2);
  for (Isa isa : isas) {
    const std::string name(isa_name(isa));
    for (size_t rows : {size_t{1}, size_t{6}, size_t{64}, size_t{512}}) {
      const std::string label = "hyper_mix/" + name + "/" + std::to_string(rows);
      benchmark::RegisterBenchmark(label.c_str(), mix, isa, rows)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
    benchmark::RegisterBenchmark(("hyper_collapse/" + name).c_str(), collapse, isa);
    benchmark::RegisterBenchmark(("hyper_expand/" + name).c_str(), expand, isa);
  }
  benchmark::RegisterBenchmark("route_row/v41", route,
                               RouterShape{.experts = 384, .per_token = 6, .scaling = 1.5f});
  benchmark::RegisterBenchmark("route_row/v3", route,
                               RouterShape{.experts = 256,
                                           .per_token = 8,
                                           .groups = 8,
                                           .groups_kept = 4,
                                           .score = RouterScore::sigmoid,
                                           .scaling = 2.5f});
  return 0;
}

const int kRegistered = register_all();

}  // namespace
}  // namespace deepinfer::kernels
