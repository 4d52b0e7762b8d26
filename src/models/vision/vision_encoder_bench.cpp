// Vision encoder of the V4.1-Flash shape with random weights: two of its 32 blocks, and the
// aligner.

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "models/vision/vision_encoder.h"

namespace deepinfer::models {
namespace {

constexpr uint32_t kBlocks = 2;
constexpr uint32_t kTextHidden = 5120;
constexpr weights::VisionConfig kFlash = {.layers = kBlocks,
                                          .hidden = 1024,
                                          .heads = 16,
                                          .intermediate = 2816,
                                          .patch = 14,
                                          .downsample = 3,
                                          .max_image_tokens = 1024,
                                          .min_pixels = 295936,
                                          .max_wh_ratio = {},
                                          .rope_theta = 10000.0};

// BF16 values within +-0.03.
class RandomTensors {
 public:
  TensorView make(const Shape& shape) {
    buffers_.emplace_back(shape.elements() * 2);
    auto* codes = buffers_.back().as<uint16_t>();
    for (uint64_t i = 0; i < shape.elements(); ++i) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      const auto number = static_cast<int32_t>(state_ >> 32);
      codes[i] = f32_to_bf16(static_cast<float>(number) * 0x1p-36f);
    }
    return {.dtype = DType::bf16, .shape = shape, .data = buffers_.back().data()};
  }

 private:
  std::deque<Buffer> buffers_;
  uint64_t state_ = 1;
};

weights::VisionTensors flash_tensors(RandomTensors& random) {
  const uint64_t c = kFlash.hidden, i = kFlash.intermediate, d = kTextHidden;
  weights::VisionTensors tensors;
  tensors.patch = random.make({c, 588});
  tensors.patch_bias = random.make({c});
  for (uint32_t n = 0; n < kBlocks; ++n) {
    tensors.blocks.push_back({.norm1 = random.make({c}),
                              .norm2 = random.make({c}),
                              .qkv = random.make({3 * c, c}),
                              .qkv_bias = random.make({3 * c}),
                              .o = random.make({c, c}),
                              .o_bias = random.make({c}),
                              .w1 = random.make({2 * i, c}),
                              .w2 = random.make({c, i})});
  }
  tensors.norm = random.make({c});
  tensors.aligner1 = random.make({d, 9 * c});
  tensors.aligner1_bias = random.make({d});
  tensors.aligner2 = random.make({d, d});
  tensors.aligner2_bias = random.make({d});
  tensors.image_start = random.make({d});
  tensors.image_end = random.make({d});
  tensors.image_newline = random.make({d});
  return tensors;
}

ThreadPool& pool() {
  static const std::unique_ptr<ThreadPool> all = ThreadPool::create({}).value();
  return *all;
}

// Seconds of a block and of the rest, and arithmetic per second.
void encode(benchmark::State& state, kernels::Isa isa, kernels::Numerics numerics) {
  const auto rows = static_cast<uint32_t>(state.range(0));
  const auto columns = static_cast<uint32_t>(state.range(1));
  RandomTensors random;
  const auto encoder =
      VisionEncoder::create(flash_tensors(random), kFlash, kTextHidden, {isa, numerics}, pool())
          .value();
  const std::vector<uint16_t> patches(size_t{rows} * columns * 588, f32_to_bf16(0.25f));
  const PatchGrid grid = {.rows = rows, .columns = columns, .patches = patches};
  std::vector<float> out(encoder->cells(grid) * kTextHidden);
  using Clock = std::chrono::steady_clock;
  double block_seconds = 0.0, seconds = 0.0;
  for (auto _ : state) {
    const auto begin = Clock::now();
    auto first = begin, last = begin;
    const Result<void> done =
        encoder->encode(grid, out.data(), [&](std::string_view stage, std::span<const float>) {
          if (stage == "patch_embed") first = Clock::now();
          if (stage == "block1") last = Clock::now();
        });
    if (!done.ok()) return state.SkipWithError(done.error().text().c_str());
    block_seconds += std::chrono::duration<double>(last - first).count();
    seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  }
  const double count = static_cast<double>(grid.count());
  const double passes = static_cast<double>(state.iterations());
  const double c = kFlash.hidden, i = kFlash.intermediate;
  const double operations = kBlocks * count * (8 * c * c + 6 * c * i + 4 * c * count);
  state.counters["block_s"] = block_seconds / passes / kBlocks;
  state.counters["rest_s"] = (seconds - block_seconds) / passes;
  state.counters["GFLOP/s"] = operations * passes / block_seconds * 1e-9;
  state.counters["32_blocks_s"] = (seconds - block_seconds + block_seconds / kBlocks * 32) / passes;
}

int register_all() {
  for (const char* name : {"avx512", "avx2"}) {
    const Result<kernels::Isa> isa = kernels::choose_isa(name);
    if (!isa.ok()) continue;
    for (const auto numerics : {kernels::Numerics::exact, kernels::Numerics::faithful}) {
      const std::string label =
          std::string("vision/") + name + "/" + std::string(kernels::numerics_name(numerics));
      benchmark::RegisterBenchmark(label.c_str(), encode, isa.value(), numerics)
          ->Args({12, 32})
          ->Args({35, 46})  // 640x480
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
    }
  }
  return 0;
}

const int kRegistered = register_all();

}  // namespace
}  // namespace deepinfer::models
