// Rows a second of one thread over the vocabulary of DeepSeek V4, and the bytes of the row read in
// that time. The logits are normal; sharp: a few stand out, as in text; flat: none does.

#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "sampling/sampler.h"

namespace deepinfer::sampling {
namespace {

constexpr size_t kVocab = 129280;

std::vector<float> row_of(bool sharp) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> logits(kVocab);
  for (float& x : logits) x = normal(random);
  if (sharp) {
    for (int i = 0; i < 8; ++i) logits[random() % kVocab] = 14.0f + static_cast<float>(i) * 0.5f;
  }
  return logits;
}

void measure(benchmark::State& state, kernels::Isa isa, bool sharp, bool masks,
             const Parameters& parameters) {
  const std::vector<float> logits = row_of(sharp);
  const std::vector<uint32_t> mask((kVocab + 31) / 32, 0x7FFFFFFF);
  Workspace workspace;
  SampleRow row = {.isa = isa, .logits = logits};
  if (masks) row.mask = mask;
  for (auto _ : state) {
    ++row.position;
    benchmark::DoNotOptimize(sample(row, parameters, workspace).value().id);
  }
  state.counters["rows/s"] = benchmark::Counter(1, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(kVocab * sizeof(float)) * 1e-9,
                                              benchmark::Counter::kIsIterationInvariantRate);
}

int register_all() {
  const struct {
    const char* name;
    bool sharp, masks;
    Parameters parameters;
  } cases[] = {
      {"greedy", true, false, {.want_logprob = false}},
      {"greedy_mask", true, true, {.want_logprob = false}},
      {"greedy_logprob", true, false, {}},
      {"greedy_top20", true, false, {.top_logprobs = 20}},
      {"greedy_top1000", false, false, {.top_logprobs = 1000}},
      {"temperature", true, false, {.temperature = 0.8f, .want_logprob = false}},
      {"top_p", true, false, {.temperature = 0.8f, .top_p = 0.95f, .want_logprob = false}},
      {"top_p_flat", false, false, {.temperature = 0.8f, .top_p = 0.95f, .want_logprob = false}},
      {"top_k_top_p",
       true,
       false,
       {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .want_logprob = false}},
      {"top_k_top_p_mask_logprob", true, true, {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f}},
      {"deepinfer",
       true,
       false,
       {.temperature = 0.8f,
        .top_p = 0.95f,
        .want_logprob = false,
        .generator = Generator::deepinfer}},
  };
  std::vector<kernels::Isa> isas;
  if (kernels::cpu_features().avx2) isas.push_back(kernels::Isa::avx2);
  if (kernels::cpu_features().avx512_vnni) isas.push_back(kernels::Isa::avx512);
  for (const auto& c : cases) {
    for (kernels::Isa isa : isas) {
      const std::string name = std::string(c.name) + "/" + std::string(kernels::isa_name(isa));
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
        measure(state, isa, c.sharp, c.masks, c.parameters);
      });
    }
  }
  return 0;
}

const int kRegistered = register_all();

}  // namespace
}  // namespace deepinfer::sampling
