// Products: GB/s of packed weights and the share of the memory bandwidth for few rows, GOP/s and
// the share of the instruction's peak for many; both limits measured in the same run. Contenders
// agree before they are timed: a row of the result is compared with the reference kernel.

#include "kernels/matmul.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "kernels/bench_machine.h"
#include "kernels/matmul/bench_agreement.h"

namespace deepinfer::kernels {
namespace {

constexpr size_t kInputs = 2048, kOutputs = 8192;
constexpr DType kFormats[] = {DType::q4_0, DType::q4_1, DType::q8_0, DType::mxfp4, DType::q4_k,
                              DType::q6_k, DType::bf16, DType::f16,  DType::f32};

// Codes and scales of every format are ordinary numbers when each byte is 0x30 .. 0x3B.
std::vector<std::byte> plausible_weights(DType dtype) {
  std::vector<std::byte> bytes(kOutputs * row_bytes(dtype, kInputs));
  uint32_t state = 1;
  for (std::byte& b : bytes) {
    state = state * 1664525u + 1013904223u;
    b = static_cast<std::byte>(0x30 | ((state >> 24) & 0x0B));
  }
  return bytes;
}

void product(benchmark::State& state, DType dtype, Isa isa, size_t rows) {
  const std::vector<std::byte> bytes = plausible_weights(dtype);
  const TensorView first_rows{dtype, {16, kInputs}, bytes.data()};
  if (!agrees_with_reference({first_rows, {}, 0, 0}, isa)) {
    state.SkipWithError("differs from the reference");
    return;
  }
  const Target target{isa, Numerics::fast};
  // Few rows: enough matrices to leave the caches, as in a model.
  const size_t count = rows > 16 ? 2 : std::max<size_t>((size_t{768} << 20) / bytes.size(), 2);
  Arena arena;
  std::vector<PackedMatrix> matrices;
  for (size_t i = 0; i < count; ++i) {
    const TensorView view{dtype, {kOutputs, kInputs}, bytes.data()};
    matrices.push_back(PackedMatrix::pack(view, target, bench_pool(), &arena).value());
  }
  Activations acts;
  acts.begin(target, rows, kInputs, matrices[0].form());
  fill_rows(acts, bench_rows(rows, kInputs));
  Buffer out(rows * kOutputs * sizeof(float));
  double seconds = 0, bandwidth = 0;
  size_t next = 0;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    matmul(bench_pool(), acts,
           {{.weights = &matrices[next], .out = out.as<float>(), .stride = kOutputs}});
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (++next == count) {
      next = 0;
      state.PauseTiming();
      if (rows <= 16) bandwidth = std::max(bandwidth, bench_bandwidth(isa));
      state.ResumeTiming();
    }
  }
  const double calls = static_cast<double>(state.iterations());
  const double read = static_cast<double>(matrices[0].bytes()) * calls / seconds;
  const double operations = 2.0 * static_cast<double>(rows * kInputs * kOutputs) * calls / seconds;
  const Limits& l = bench_limits(isa);
  const bool int8 = (matrices[0].form() & kFormInt8) != 0;
  const double peak = !int8                  ? l.f32.all_threads
                      : dtype == DType::q8_0 ? l.int8_signed.all_threads
                                             : l.int8_unsigned.all_threads;
  state.counters["GB/s"] = read * 1e-9;
  state.counters["GOP/s"] = operations * 1e-9;
  if (bandwidth > 0) state.counters["of_dram"] = read / bandwidth;
  if (peak > 0) state.counters["of_peak"] = operations / peak;
}

void register_all() {
  std::vector<Isa> isas;
  if (cpu_features().avx512_vnni) isas.push_back(Isa::avx512);
  if (cpu_features().avx2) isas.push_back(Isa::avx2);
  for (Isa isa : isas) {
    for (DType dtype : kFormats) {
      for (size_t rows : {1, 4, 16, 512}) {
        const std::string name = "matmul/" + std::string(dtype_info(dtype).name) + "/" +
                                 std::string(isa_name(isa)) + "/rows:" + std::to_string(rows);
        benchmark::RegisterBenchmark(name.c_str(), product, dtype, isa, rows)->UseRealTime();
      }
    }
  }
}

const bool kRegistered = (register_all(), true);

}  // namespace
}  // namespace deepinfer::kernels
