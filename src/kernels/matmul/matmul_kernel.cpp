#include "kernels/matmul/matmul_kernel.h"

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
constexpr uint8_t kPair[] = {1, 2};  // the codes of a refined row

template <class Sizes>
struct List;
template <int... kSizes>
struct List<std::integer_sequence<int, kSizes...>> {
  static constexpr uint8_t kValues[] = {kSizes...};
};

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
  if (isa == Isa::ref) return kPair;
  if (isa == Isa::avx2) return List<Int8Groups256>::kValues;
  return List<Int8Groups512>::kValues;
}

std::span<const uint8_t> f32_group_sizes(Isa isa) {
  if (isa == Isa::ref) return kOne;
  return List<F32Groups>::kValues;
}

}  // namespace deepinfer::kernels
