#pragma once

// What the driver of index scores (indexer.cpp) and the bodies share.
//
// Arithmetic, the same bits on every instruction set (one chain of fused multiply-adds in float32):
//   f32, bf16  dot = sum over i ascending of q_i * key_i
//   q4u        dot = sum over blocks b ascending of I_b * key scale_b * query scale_b, I_b the
//   exact
//              sum of products of codes
//   score = sum over heads ascending of weight_h * max(dot_h, 0); NaN stays
//
// Threads: pure functions of their arguments; scratch belongs to one worker.

#include <cstddef>
#include <cstdint>

#include "kernels/attention/indexer.h"

namespace deepinfer::kernels {

inline constexpr size_t kIndexBlock = 32;  // values of a q4u scale

// The heads of a query as the bodies multiply them with q4u keys. Dword d of a key row holds the
// elements 8d, 8d+2, 8d+4, 8d+6 in its low nibbles, the odd ones in its high nibbles.
struct IndexCodes {
  const int32_t* codes = nullptr;    // [heads][width/4]: for dword d four even, then four odd
                                     // elements, doubled, a signed byte each
  const int32_t* offsets = nullptr;  // [heads][width/32]: minus 12 times the block's sum of codes;
                                     // AVX2: in the low int16 of two
  const float* scales = nullptr;     // [heads][width/32]: a quarter of the block's scale
};

// Entries [first, first + count) of one query.
struct IndexTile {
  const IndexShape* shape = nullptr;
  const IndexQuery* query = nullptr;
  IndexCodes codes;  // q4u keys, not ref
  size_t row_bytes = 0;
  size_t first = 0;
  size_t count = 0;

  const std::byte* row(size_t entry) const {
    const size_t page = entry / shape->entries_per_page;
    return query->pages[page] + entry % shape->entries_per_page * row_bytes;
  }
};

struct IndexKernel {
  void (*scores)(const IndexTile& tile, std::byte* scratch);
  // Bytes of scratch for the shape, 64-byte aligned and zero before the first use.
  size_t (*scratch_bytes)(const IndexShape& shape);
  // Fills IndexCodes from query [heads][width]; null where the body reads floats.
  void (*encode_query)(const IndexShape& shape, const float* query, int32_t* codes,
                       int32_t* offsets, float* scales);
};

namespace ref {
const IndexKernel& index_kernel();
}
namespace avx2 {
const IndexKernel& index_kernel();
}
namespace avx512 {
const IndexKernel& index_kernel();
}
namespace emulated512 {
const IndexKernel& index_kernel();
}

}  // namespace deepinfer::kernels
