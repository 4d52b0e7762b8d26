// Products of FP8 and FP4 matrices, one matrix for all rows and experts for a few rows each: GB/s
// of packed weights and the share of the memory bandwidth, GOP/s and the share of the instruction's
// peak, limits measured in the same run. A row of each matrix is compared with the reference before
// anything is timed.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/bench_machine.h"
#include "kernels/matmul.h"
#include "kernels/matmul/bench_agreement.h"

namespace deepinfer::kernels {
namespace {

constexpr size_t kInputs = 4096, kOutputs = 2048;

struct Kind {
  const char* name;
  DType codes;
  DType scales;
  uint32_t tile_outputs, tile_inputs;
};
constexpr Kind kKinds[] = {
    {"FP8_32x32", DType::f8_e4m3, DType::f8_e8m0, 32, 32},
    {"FP8_128x128", DType::f8_e4m3, DType::f8_e8m0, 128, 128},
    {"FP8_128x128_F32", DType::f8_e4m3, DType::f32, 128, 128},
    {"FP4", DType::f4_e2m1, DType::f8_e8m0, 1, 32},
};

struct Matrix {
  std::vector<std::byte> codes, scales;
  ScaledView view;
};

// Codes of normal values whose largest fill the range, as quantisers leave them.
Matrix make(const Kind& kind) {
  std::mt19937 rng(7);
  std::normal_distribution<float> normal(0, 100);
  Matrix m;
  m.codes.resize(kOutputs * row_bytes(kind.codes, kInputs));
  std::vector<std::byte> some(65521);  // a prime: rows differ
  for (std::byte& code : some) {
    code = static_cast<std::byte>(kind.codes == DType::f8_e4m3 ? f32_to_e4m3(normal(rng)) : rng());
  }
  for (size_t i = 0; i < m.codes.size(); ++i) m.codes[i] = some[i % some.size()];
  const size_t rows = kOutputs / kind.tile_outputs, columns = kInputs / kind.tile_inputs;
  m.scales.resize(row_bytes(kind.scales, rows * columns));
  for (size_t i = 0; i < rows * columns; ++i) {
    const float scale = 1e-4f * static_cast<float>(1 + i % 5);
    if (kind.scales == DType::f32) std::memcpy(m.scales.data() + i * 4, &scale, 4);
    if (kind.scales == DType::f8_e8m0) m.scales[i] = static_cast<std::byte>(114 + i % 4);
  }
  m.view = {{kind.codes, {kOutputs, kInputs}, m.codes.data()},
            {kind.scales, {rows, columns}, m.scales.data()},
            kind.tile_outputs,
            kind.tile_inputs};
  return m;
}

struct Timer {
  double seconds = 0, bytes = 0, operations = 0, bandwidth = 0;

  void measure(const Activations& acts, std::span<const Product> products, double work_bytes,
               double work_operations) {
    const auto start = std::chrono::steady_clock::now();
    matmul(bench_pool(), acts, products);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    bytes += work_bytes;
    operations += work_operations;
  }
  void probe(benchmark::State& state, Isa isa) {
    state.PauseTiming();
    bandwidth = std::max(bandwidth, bench_bandwidth(isa));
    state.ResumeTiming();
  }
  void report(benchmark::State& state, Isa isa, bool int8) const {
    const Limits& limits = bench_limits(isa);
    const double peak = (int8 ? limits.int8_unsigned : limits.f32).all_threads;
    state.counters["GB/s"] = bytes / seconds * 1e-9;
    state.counters["GOP/s"] = operations / seconds * 1e-9;
    if (bandwidth > 0) state.counters["of_dram"] = bytes / seconds / bandwidth;
    if (peak > 0) state.counters["of_peak"] = operations / seconds / peak;
  }
};

void product(benchmark::State& state, const Kind& kind, Isa isa, size_t rows) {
  const Matrix m = make(kind);
  if (!agrees_with_reference(m.view.slice_outputs(0, 64), isa)) {
    return state.SkipWithError("differs from the reference");
  }
  const Target target{isa, Numerics::fast};
  // Few rows: enough matrices to leave the caches, as in a model.
  const size_t count = rows > 16 ? 2 : (size_t{768} << 20) / m.view.bytes();
  Arena arena;
  std::vector<PackedMatrix> ws;
  for (size_t i = 0; i < count; ++i) {
    ws.push_back(PackedMatrix::pack(m.view, target, bench_pool(), &arena).value());
  }
  Activations acts;
  acts.begin(target, rows, kInputs, ws[0].form());
  fill_rows(acts, bench_rows(rows, kInputs));
  Buffer out(rows * kOutputs * sizeof(float));
  Timer timer;
  size_t next = 0;
  for (auto _ : state) {
    const Product p{.weights = &ws[next], .out = out.as<float>(), .stride = kOutputs};
    timer.measure(acts, {&p, 1}, static_cast<double>(ws[0].bytes()),
                  2.0 * static_cast<double>(rows * kInputs * kOutputs));
    if (++next < count) continue;
    next = 0;
    if (rows <= 16) timer.probe(state, isa);
  }
  timer.report(state, isa, (ws[0].form() & kFormInt8) != 0);
}

// A layer's worth of experts in each of several layers; every row takes kPerToken of kExperts.
constexpr size_t kExperts = 32, kPerToken = 6;

// Rows per expert for one batch.
std::vector<uint32_t> route(size_t rows, std::mt19937& rng) {
  std::vector<uint32_t> segment_rows(kExperts, 0);
  std::vector<size_t> order(kExperts);
  for (size_t e = 0; e < kExperts; ++e) order[e] = e;
  for (size_t r = 0; r < rows; ++r) {
    std::shuffle(order.begin(), order.end(), rng);
    for (size_t i = 0; i < kPerToken; ++i) ++segment_rows[order[i]];
  }
  return segment_rows;
}

void experts(benchmark::State& state, const Kind& kind, Isa isa, size_t rows) {
  const Matrix m = make(kind);
  if (!agrees_with_reference(m.view.slice_outputs(0, 64), isa)) {
    return state.SkipWithError("differs from the reference");
  }
  const Target target{isa, Numerics::fast};
  const size_t layers = rows > 16 ? 1 : 4;
  Arena arena;
  std::vector<PackedMatrix> ws;
  for (size_t i = 0; i < layers * kExperts; ++i) {
    ws.push_back(PackedMatrix::pack(m.view, target, bench_pool(), &arena).value());
  }
  const std::vector<float> x = bench_rows(rows * kPerToken, kInputs);
  Buffer out(rows * kPerToken * kOutputs * sizeof(float));
  std::mt19937 rng(3);
  Timer timer;
  size_t layer = 0, rounds = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const std::vector<uint32_t> segment_rows = route(rows, rng);
    Activations acts;
    acts.begin(target, segment_rows, kInputs, ws[0].form());
    fill_rows(acts, x);
    std::vector<Product> products;
    size_t first = 0, used = 0;
    for (uint32_t e = 0; e < kExperts; ++e) {
      products.push_back({.weights = &ws[layer * kExperts + e],
                          .segment = e,
                          .out = out.as<float>() + first * kOutputs,
                          .stride = kOutputs});
      first += segment_rows[e];
      used += segment_rows[e] > 0;
    }
    layer = (layer + 1) % layers;
    state.ResumeTiming();
    timer.measure(acts, products, static_cast<double>(used * ws[0].bytes()),
                  2.0 * static_cast<double>(rows * kPerToken * kInputs * kOutputs));
    if (rows <= 16 && ++rounds % 16 == 0) timer.probe(state, isa);
  }
  timer.report(state, isa, (ws[0].form() & kFormInt8) != 0);
}

void register_all() {
  std::vector<Isa> isas;
  if (cpu_features().avx512_vnni) isas.push_back(Isa::avx512);
  if (cpu_features().avx2) isas.push_back(Isa::avx2);
  for (Isa isa : isas) {
    for (const Kind& kind : kKinds) {
      const std::string set = "/" + std::string(kind.name) + "/" + std::string(isa_name(isa));
      for (size_t rows : {1, 2, 4, 16, 512}) {
        benchmark::RegisterBenchmark(("matmul" + set + "/rows:" + std::to_string(rows)).c_str(),
                                     product, kind, isa, rows)
            ->UseRealTime();
      }
      for (size_t rows : {1, 16, 512}) {
        benchmark::RegisterBenchmark(("experts" + set + "/rows:" + std::to_string(rows)).c_str(),
                                     experts, kind, isa, rows)
            ->UseRealTime();
      }
    }
  }
}

const bool kRegistered = (register_all(), true);

}  // namespace
}  // namespace deepinfer::kernels
