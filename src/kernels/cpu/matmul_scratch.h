#pragma once

// Scratch floats of the calling worker, grown to the largest request and kept; 64-byte aligned.
// Valid until the next call on the same thread.

#include <cstddef>

namespace deepinfer::kernels {

float* matmul_scratch(size_t floats) noexcept;

}  // namespace deepinfer::kernels
