#include "kernels/matmul_kernel.h"

namespace deepinfer::kernels {

namespace ref {
std::span<const MatmulKernel> kernels();
}
namespace avx2 {
std::span<const MatmulKernel> kernels();
}
namespace avx512 {
std::span<const MatmulKernel> kernels();
}
namespace emulated512 {
std::span<const MatmulKernel> kernels();
}

namespace {

constexpr uint8_t kOne[] = {1};
constexpr uint8_t kRefInt8Sizes[] = {1, 2};
constexpr uint8_t kAvx2Sizes[] = {1, 2, 3, 4, 6};
constexpr uint8_t kAvx512Sizes[] = {1, 2, 4, 6, 8, 12};
constexpr uint8_t kF32Sizes[] = {1, 2, 3, 4, 6};

}  // namespace

std::span<const MatmulKernel> matmul_kernels(Isa isa) {
  switch (isa) {
    case Isa::ref:
      return ref::kernels();
    case Isa::avx2:
      return avx2::kernels();
    case Isa::avx512:
      return avx512::kernels();
    case Isa::emulated512:
      return emulated512::kernels();
  }
  return {};
}

std::span<const uint8_t> int8_group_sizes(Isa isa) {
  if (isa == Isa::ref) return kRefInt8Sizes;
  if (isa == Isa::avx2) return kAvx2Sizes;
  return kAvx512Sizes;
}

std::span<const uint8_t> f32_group_sizes(Isa isa) {
  if (isa == Isa::ref) return kOne;
  return kF32Sizes;
}

}  // namespace deepinfer::kernels
