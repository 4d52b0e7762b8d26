#pragma once

// The loops that limits.cpp times, one table per instruction set. Threads: any.

#include <cstddef>
#include <cstdint>

namespace deepinfer::kernels {

struct LimitLoop {
  void (*run)(size_t rounds) noexcept = nullptr;  // null: the set has none
  double operations_per_round = 0.0;
};

struct LimitKernels {
  // Reads both streams once; bytes: of each, a multiple of 512. The result depends on every byte.
  uint64_t (*read)(const std::byte* first, const std::byte* second, size_t bytes) noexcept;
  LimitLoop f32;
  LimitLoop int8_unsigned;
  LimitLoop int8_signed;
  LimitLoop bf16;
};

namespace ref {
const LimitKernels& limit_kernels();
}
namespace avx2 {
const LimitKernels& limit_kernels();
}
namespace avx512 {
const LimitKernels& limit_kernels();
}

}  // namespace deepinfer::kernels
