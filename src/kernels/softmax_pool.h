#pragma once

// Pooling of token rows into one compressed entry (the compressors of V4 and V4.1; source: spec
// v4.md 4.3): per channel c, over `slots` tokens,
//
//   out[c] = sum_i e^(s_i[c] - M_c) a_i[c] / sum_i e^(s_i[c] - M_c),   M_c = max_i s_i[c]
//
// in float32, i ascending. Bits: an entry depends on its rows only. out must not overlap the rows.
// Threads: any; pure.

#include <cstddef>

#include "kernels/isa.h"

namespace deepinfer::kernels {

// scores, values: [slots] rows of [width]; slots >= 1.
using SoftmaxPool = void (*)(const float* const* scores, const float* const* values, size_t slots,
                             size_t width, float* out);

SoftmaxPool softmax_pool(Isa isa);

namespace ref {
SoftmaxPool softmax_pool_body();
}
namespace avx2 {
SoftmaxPool softmax_pool_body();
}
namespace avx512 {
SoftmaxPool softmax_pool_body();
}
namespace emulated512 {
SoftmaxPool softmax_pool_body();
}

}  // namespace deepinfer::kernels
