// Decode: GB/s of keys and values, and their share of the memory bandwidth measured in between.
// Prefill: GFLOP/s (four per head dimension, head and visible token), and their share of the FMA
// peak.

#include "kernels/attention/attention.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "base/memory.h"
#include "kernels/limits.h"

namespace deepinfer::kernels {
namespace {

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

const BandwidthProbe& probe() {
  static const BandwidthProbe made = BandwidthProbe::create(pool()).value();
  return made;
}

// Pages of `layers` layers for `tokens` tokens, with plausible contents.
struct Pages {
  Pages(const AttentionShape& shape, size_t tokens, size_t layers) {
    const size_t count = (tokens + kPageTokens - 1) / kPageTokens;
    const size_t elements = shape.page_bytes() / kv_element_bytes(shape.form);
    bytes.reserve(count * layers);
    for (size_t i = 0; i < count * layers; ++i) {
      bytes.emplace_back(shape.page_bytes());
      uint64_t state = i * 977 + 1;
      for (size_t e = 0; e < elements; ++e) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const float x = static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31f;
        if (shape.form == KvForm::f32) {
          bytes.back().as<float>()[e] = x;
        } else {
          bytes.back().as<uint16_t>()[e] = f32_to_bf16(x);
        }
      }
      pointers.push_back(bytes.back().data());
    }
  }
  std::vector<Buffer> bytes;
  std::vector<const std::byte*> pointers;  // [layers][pages]
};

AttentionShape shape_of(size_t heads, size_t kv_heads, size_t dims, KvForm form) {
  return {.heads = heads,
          .kv_heads = kv_heads,
          .head_dim = dims,
          .form = form,
          .scale = 1.0f / std::sqrt(static_cast<float>(dims))};
}

void decode(benchmark::State& state, Isa isa, AttentionShape shape, size_t context) {
  // Enough layers to leave the caches, as in a model.
  const size_t layer_bytes = shape.page_bytes() * (context / kPageTokens);
  const size_t target = std::min<size_t>(size_t{768} << 20, available_memory_bytes() / 4);
  const size_t layers = std::max<size_t>(target / layer_bytes, 2);
  const Pages pages(shape, context, layers);
  const size_t width = shape.heads * shape.head_dim;
  const std::vector<float> queries(width, 0.3f);
  std::vector<float> out(width);
  AttentionWorkspace workspace;
  std::vector<double> bandwidth;
  size_t layer = 0, passes = 0;
  double seconds = 0.0;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < layers; ++i) {
      const AttentionSequence one[] = {{.pages = &pages.pointers[i * (context / kPageTokens)],
                                        .first_position = context - 1,
                                        .rows = 1,
                                        .queries = queries.data(),
                                        .out = out.data()}};
      attention(pool(), isa, shape, one, width, width, workspace);
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    state.SetIterationTime(took.count());
    seconds += took.count();
    ++passes;
    if (bandwidth.size() < 3 || passes % 16 == 0) bandwidth.push_back(probe().measure(pool(), isa));
    layer += layers;
  }
  std::sort(bandwidth.begin(), bandwidth.end());
  const double bytes = static_cast<double>(layer * layer_bytes);
  state.counters["GB/s"] = bytes / seconds * 1e-9;
  state.counters["us/layer"] = seconds / static_cast<double>(layer) * 1e6;
  state.counters["share"] = bytes / seconds / bandwidth[bandwidth.size() / 2];
}

// Passes over one sequence, with the share of the peak that `operations` of a pass make.
void measure(benchmark::State& state, Isa isa, const AttentionShape& shape,
             const AttentionSequence& sequence, double operations) {
  const size_t width = shape.heads * shape.head_dim;
  AttentionWorkspace workspace;
  double seconds = 0.0, best = 1e9;
  size_t passes = 0;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    attention(pool(), isa, shape, {&sequence, 1}, width, width, workspace);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    state.SetIterationTime(took.count());
    seconds += took.count();
    best = std::min(best, took.count());
    ++passes;
  }
  state.counters["GFLOP/s"] = operations * static_cast<double>(passes) / seconds * 1e-9;
  state.counters["best"] = operations / best * 1e-9;
  state.counters["share"] = operations / best / fma_peak(isa);
}

void prefill(benchmark::State& state, Isa isa, AttentionShape shape, size_t context) {
  constexpr size_t kRows = 512;
  const Pages pages(shape, context, 1);
  const size_t width = shape.heads * shape.head_dim;
  const std::vector<float> queries(kRows * width, 0.3f);
  std::vector<float> out(kRows * width);
  const double visible = static_cast<double>(kRows) *
                         (static_cast<double>(context) - (static_cast<double>(kRows) - 1.0) / 2.0);
  measure(state, isa, shape,
          {.pages = pages.pointers.data(),
           .first_position = context - kRows,
           .rows = kRows,
           .queries = queries.data(),
           .out = out.data()},
          4.0 * static_cast<double>(width) * visible);
}

// The patches of a picture: every row sees every token.
void patches(benchmark::State& state, Isa isa, AttentionShape shape, size_t count) {
  const Pages pages(shape, count, 1);
  const size_t width = shape.heads * shape.head_dim;
  const std::vector<float> queries(count * width, 0.3f);
  std::vector<float> out(count * width);
  measure(state, isa, shape,
          {.pages = pages.pointers.data(),
           .rows = count,
           .bidirectional = true,
           .queries = queries.data(),
           .out = out.data()},
          4.0 * static_cast<double>(width * count) * static_cast<double>(count));
}

void append_row(benchmark::State& state, AttentionShape shape) {
  const size_t width = shape.kv_heads * shape.head_dim;
  const std::vector<float> row(width, 0.3f);
  Buffer page(shape.page_bytes());
  size_t token = 0;
  for (auto _ : state) {
    kv_append(shape, page.data(), token, row.data(), row.data());
    token = (token + 1) % kPageTokens;
    benchmark::ClobberMemory();
  }
}

int register_all() {
  struct Named {
    const char* name;
    AttentionShape shape;
  };
  const Named shapes[] = {{"9/3x64", shape_of(9, 3, 64, KvForm::bf16)},
                          {"32/8x64", shape_of(32, 8, 64, KvForm::bf16)},
                          {"32/8x128", shape_of(32, 8, 128, KvForm::bf16)},
                          {"14/2x64f32", shape_of(14, 2, 64, KvForm::f32)},
                          {"8/8x96", shape_of(8, 8, 96, KvForm::bf16)}};
  std::vector<Isa> isas;
  if (cpu_features().avx512_vnni) isas.push_back(Isa::avx512);
  if (cpu_features().avx2) isas.push_back(Isa::avx2);
  const auto label = [](const char* what, Isa isa, const char* shape, size_t context) {
    return std::string(what) + "/" + std::string(isa_name(isa)) + "/" + shape + "/" +
           std::to_string(context);
  };
  for (Isa isa : isas) {
    for (const auto& [name, shape] : shapes) {
      for (size_t context : {1024, 8192, 65536}) {
        benchmark::RegisterBenchmark(label("decode", isa, name, context).c_str(), decode, isa,
                                     shape, context)
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
      }
      for (size_t context : {512, 1024, 4096}) {
        benchmark::RegisterBenchmark(label("prefill", isa, name, context).c_str(), prefill, isa,
                                     shape, context)
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
  for (Isa isa : isas) {
    for (KvForm form : {KvForm::f32, KvForm::bf16}) {
      for (size_t count : {384, 1610, 8649}) {
        const char* name = form == KvForm::f32 ? "16/16x64f32" : "16/16x64";
        benchmark::RegisterBenchmark(label("patches", isa, name, count).c_str(), patches, isa,
                                     shape_of(16, 16, 64, form), count)
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
  benchmark::RegisterBenchmark("append/32/8x64", append_row, shapes[1].shape);
  return 0;
}

const int kRegistered = register_all();

}  // namespace
}  // namespace deepinfer::kernels
