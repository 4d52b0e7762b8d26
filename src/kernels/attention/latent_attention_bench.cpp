// Latent attention: GFLOP/s (two per key dimension and value dimension, head and row), their share
// of the FMA peak measured beside, GB/s of stored rows; rows encoded, decoded and rounded.

#include "kernels/attention/latent_attention.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

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

struct Spec {
  const char* name;
  size_t heads, dim, value_dim;
  LatentFormat window, entries;
  size_t window_rows, entry_rows, stored_entries;
};

// Rows of one layer and the queries of a step that see them; entries are chosen evenly.
class Step {
 public:
  Step(const Spec& spec, size_t queries)
      : shape_{.heads = spec.heads,
               .dim = spec.dim,
               .value_dim = spec.value_dim,
               .window = spec.window,
               .entries = spec.entries,
               .entries_per_page = 128,
               .scale = 1.0f / std::sqrt(static_cast<float>(spec.dim))},
        query_(queries * spec.heads * spec.dim),
        out_(queries * spec.heads * spec.value_dim) {
    fill(query_);
    const size_t window = spec.window_rows + queries - 1;
    ring_ = stored(spec.window, spec.window_rows > 0 ? window : 0);
    entries_ = stored(spec.entries, spec.stored_entries);
    const size_t page = spec.entries.row_bytes() * shape_.entries_per_page;
    for (size_t at = 0; at < entries_.size(); at += page) pages_.push_back(entries_.data() + at);
    for (size_t j = 0; j < spec.entry_rows; ++j) {
      selected_.push_back(static_cast<uint32_t>(j * spec.stored_entries / spec.entry_rows));
    }
    for (size_t q = 0; q < queries; ++q) {
      queries_.push_back({.query = query_.data() + q * spec.heads * spec.dim,
                          .out = out_.data() + q * spec.heads * spec.value_dim,
                          .window_first = q,
                          .window_end = q + spec.window_rows,
                          .ring = ring_.data(),
                          .ring_rows = window,
                          .pages = pages_.data(),
                          .selected = selected_.data(),
                          .entry_count = selected_.size()});
    }
    const double rows = static_cast<double>(queries * (spec.window_rows + spec.entry_rows));
    operations_ = 2.0 * rows * static_cast<double>(spec.heads * (spec.dim + spec.value_dim));
    bytes_ = static_cast<double>(queries * (spec.window_rows * spec.window.row_bytes() +
                                            spec.entry_rows * spec.entries.row_bytes()));
  }

  void run(Isa isa) { latent_attention(pool(), isa, shape_, queries_, workspace_); }
  double operations() const { return operations_; }
  double bytes() const { return bytes_; }

 private:
  static void fill(std::vector<float>& values) {
    uint64_t state = 1;
    for (float& x : values) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      x = static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31f;
    }
  }
  static std::vector<std::byte> stored(const LatentFormat& format, size_t rows) {
    std::vector<std::byte> out(rows * format.row_bytes());
    std::vector<float> values(format.width + 31);
    fill(values);
    for (size_t i = 0; i < rows; ++i) {
      latent_row_ops(Isa::ref).encode(format, &values[i % 31], out.data() + i * format.row_bytes());
    }
    return out;
  }

  LatentShape shape_;
  std::vector<float> query_, out_;
  std::vector<std::byte> ring_, entries_;
  std::vector<const std::byte*> pages_;
  std::vector<uint32_t> selected_;
  std::vector<LatentQuery> queries_;
  AttentionWorkspace workspace_;
  double operations_ = 0.0, bytes_ = 0.0;
};

void attend(benchmark::State& state, Isa isa, Spec spec, size_t queries) {
  Step step(spec, queries);
  double seconds = 0.0, best = 1e9;
  size_t passes = 0;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    step.run(isa);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    state.SetIterationTime(took.count());
    seconds += took.count();
    best = std::min(best, took.count());
    ++passes;
  }
  const double passed = static_cast<double>(passes);
  state.counters["GFLOP/s"] = step.operations() * passed / seconds * 1e-9;
  state.counters["best"] = step.operations() / best * 1e-9;
  state.counters["share"] = step.operations() / best / fma_peak(isa);
  state.counters["GB/s"] = step.bytes() * passed / seconds * 1e-9;
}

void rows(benchmark::State& state, LatentFormat format,
          const std::function<void(const LatentFormat&, float*, std::byte*)>& work) {
  std::vector<float> values(format.width);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i * 7919 % 1009) * 0.01f - 5.0f;
  }
  std::vector<std::byte> row(format.row_bytes());
  latent_row_ops(Isa::ref).encode(format, values.data(), row.data());
  for (auto _ : state) {
    work(format, values.data(), row.data());
    benchmark::ClobberMemory();
  }
  state.counters["values/s"] = benchmark::Counter(static_cast<double>(format.width),
                                                  benchmark::Counter::kIsIterationInvariantRate);
}

LatentFormat format_of(LatentCode code, uint32_t width, uint32_t rope = 0) {
  return {.code = code, .width = width, .rope = rope};
}

void register_rows(Isa isa) {
  const LatentRowOps& ops = latent_row_ops(isa);
  const std::pair<const char*, LatentFormat> formats[] = {
      {"bf16", format_of(LatentCode::bf16, 512)}, {"q8", format_of(LatentCode::q8, 512)},
      {"q4e", format_of(LatentCode::q4e, 512)},   {"q4u", format_of(LatentCode::q4u, 128)},
      {"v4", format_of(LatentCode::v4, 512, 64)},
  };
  const std::string prefix = "latent_rows/" + std::string(isa_name(isa)) + "/";
  for (const auto& [name, format] : formats) {
    using Function = std::function<void(const LatentFormat&, float*, std::byte*)>;
    const std::pair<const char*, Function> works[] = {
        {"decode/", [&ops](const LatentFormat& f, float* x, std::byte* r) { ops.decode(f, r, x); }},
        {"encode/", [&ops](const LatentFormat& f, float* x, std::byte* r) { ops.encode(f, x, r); }},
        {"round/", [&ops](const LatentFormat& f, float* x, std::byte*) { ops.round(f, x); }},
    };
    for (const auto& [what, work] : works) {
      benchmark::RegisterBenchmark((prefix + what + name).c_str(), rows, format, work);
    }
  }
}

int register_all() {
  const LatentFormat f32 = format_of(LatentCode::f32, 512), q8 = format_of(LatentCode::q8, 512);
  const LatentFormat q4e = format_of(LatentCode::q4e, 512), v4 = format_of(LatentCode::v4, 512, 64);
  const LatentFormat bf16 = format_of(LatentCode::bf16, 576);
  const Spec specs[] = {
      {"v41", 64, 512, 512, q8, q4e, 128, 512, 32768},
      {"v4", 64, 512, 512, v4, v4, 128, 512, 16384},
      {"v41f32", 64, 512, 512, f32, f32, 128, 512, 32768},
      {"v4all", 64, 512, 512, v4, v4, 128, 8192, 8192},
      {"v3_4k", 128, 576, 512, {}, bf16, 0, 4096, 4096},
      {"v3_64k", 128, 576, 512, {}, bf16, 0, 65536, 65536},
  };
  std::vector<Isa> isas;
  if (cpu_features().avx512_vnni) isas.push_back(Isa::avx512);
  if (cpu_features().avx2) isas.push_back(Isa::avx2);
  for (Isa isa : isas) {
    const auto label = [isa](const char* what, const Spec& spec, size_t queries) {
      return "latent/" + std::string(what) + "/" + std::string(isa_name(isa)) + "/" + spec.name +
             "/" + std::to_string(queries);
    };
    const auto add = [&](const char* what, const Spec& spec, size_t queries) {
      benchmark::RegisterBenchmark(label(what, spec, queries).c_str(), attend, isa, spec, queries)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    };
    for (const Spec& spec : specs) add("decode", spec, 1);
    add("decode", specs[0], 8);
    for (size_t i : {0, 1, 2}) add("prefill", specs[i], 512);
    register_rows(isa);
  }
  return 0;
}

const int kRegistered = register_all();

}  // namespace
}  // namespace deepinfer::kernels
