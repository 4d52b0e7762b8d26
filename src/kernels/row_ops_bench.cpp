// Row operations on rows that lie in the cache: GB/s of what each reads and writes.

#include "kernels/row_ops.h"

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

namespace deepinfer::kernels {
namespace {

struct Rows {
  explicit Rows(size_t n) : x(n), y(n, 0.5f), out(n) {
    for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i % 97) * 0.11f - 5.0f;
  }
  std::vector<float> x, y, out;
};

// run(ops, rows, n) once per iteration; `streams` rows of n floats are read or written.
template <class Run>
void measure(benchmark::State& state, Isa isa, size_t n, size_t streams, Run run) {
  const RowOps& ops = row_ops(isa);
  Rows rows(n);
  for (auto _ : state) {
    run(ops, rows, n);
    benchmark::ClobberMemory();
  }
  const double bytes = static_cast<double>(n * streams * sizeof(float));
  state.counters["GB/s"] =
      benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

template <class Run>
void add_operation(const std::string& name, size_t n, size_t streams, Run run) {
  std::vector<Isa> isas = {Isa::ref};
  if (cpu_features().avx2) isas.push_back(Isa::avx2);
  if (cpu_features().avx512_vnni) isas.push_back(Isa::avx512);
  for (Isa isa : isas) {
    const std::string label = name + "/" + std::string(isa_name(isa)) + "/" + std::to_string(n);
    benchmark::RegisterBenchmark(
        label.c_str(), [=](benchmark::State& state) { measure(state, isa, n, streams, run); });
  }
}

int register_all() {
  add_operation("rms_norm", 2048, 3, [](const RowOps& ops, Rows& r, size_t n) {
    ops.rms_norm(r.x.data(), r.y.data(), 1e-5f, r.out.data(), n);
  });
  add_operation("silu_mul", 8192, 3, [](const RowOps& ops, Rows& r, size_t n) {
    ops.silu_mul(r.x.data(), r.y.data(), r.out.data(), n);
  });
  add_operation("add", 2048, 3,
                [](const RowOps& ops, Rows& r, size_t n) { ops.add(r.out.data(), r.y.data(), n); });
  for (RopePairing pairing : {RopePairing::half_split, RopePairing::interleaved}) {
    const bool half = pairing == RopePairing::half_split;
    add_operation(half ? "rope_half_split" : "rope_interleaved", 64, 3,
                  [=](const RowOps& ops, Rows& r, size_t n) {
                    ops.rope(r.out.data(), r.y.data(), r.y.data(), n / 2, pairing);
                  });
  }
  add_operation("argmax", 128256, 1, [](const RowOps& ops, Rows& r, size_t n) {
    benchmark::DoNotOptimize(ops.argmax(r.x.data(), n));
  });
  add_operation("log_sum_exp", 128256, 1, [](const RowOps& ops, Rows& r, size_t n) {
    benchmark::DoNotOptimize(ops.log_sum_exp(r.x.data(), n));
  });
  add_operation("all_finite", 2048, 1, [](const RowOps& ops, Rows& r, size_t n) {
    benchmark::DoNotOptimize(ops.all_finite(r.x.data(), n));
  });
  return 0;
}

const int kRegistered = register_all();

}  // namespace
}  // namespace deepinfer::kernels
