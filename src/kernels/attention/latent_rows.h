#pragma once

// Rows of a compressed KV cache: their storage formats, and the rounding that they mean.
//
// Sources: DeepSeek-V4 and V4.1 (spec sections "number formats", "row formats"); FP8 is E4M3FN, FP4
// is E2M1; all conversions round to nearest even and saturate. amax is over the block.
//   f32     width * 4 bytes
//   bf16    width * 2 bytes
//   q8      width E4M3 codes, then width/32 UE8M0 scales:
//           s = 2^ceil(log2(max(amax, 1e-4) * (1/448)))
//   q4e     width/2 bytes of E2M1 pairs (even element in the low nibble), then width/16 E4M3
//   scales:
//           s = E4M3(min(max(amax, 6*2^-9) * (1/6), 448)); codes from x * (1/s)
//   q4u     width/2 bytes of pairs, then width/32 UE8M0 scales:
//           s = 2^ceil(log2(max(amax, 6*2^-126) * (1/6)))
//   v4      (width - rope) E4M3 codes with a UE8M0 scale per 64 (the q8 rule), then the last `rope`
//           values in bf16. Bytes: width - rope, then the scales padded to 8 (the last block may be
//           partial), then 2 * rope; 584 for width 512, rope 64.
// The products with 1/448 and 1/6 are float32.
//
// decode(encode(x)) is what the official code computes with. Rounding it again changes no value
// (q4e: in blocks with amax from 6 * 2^-6 on; below that E4M3 scales are too coarse).
// A block that holds a NaN or an infinity (q8, v4: or a value above 448 * 2^119) becomes NaN as a
// whole: its scale is the NaN code, its codes are 0. NaN codes of values are never written; what
// decode() makes of them is not defined.
//
// Threads: any; pure functions.

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"

namespace deepinfer::kernels {

enum class LatentCode : uint8_t { f32, bf16, q8, q4e, q4u, v4 };

struct LatentFormat {
  LatentCode code = LatentCode::f32;
  uint32_t width = 0;  // values; a multiple of the block (v4: of 2)
  uint32_t rope = 0;   // v4: the last values that stay bf16

  size_t row_bytes() const;
  bool operator==(const LatentFormat&) const = default;
};

struct LatentRowOps {
  // values [width] -> row [row_bytes()]
  void (*encode)(const LatentFormat& format, const float* values, std::byte* row);
  void (*decode)(const LatentFormat& format, const std::byte* row, float* values);
  // x[i] = decode(encode(x)); f32 leaves x alone.
  void (*round)(const LatentFormat& format, float* x);
  // Nearest bf16, ties to even.
  void (*round_bf16)(float* x, size_t n);
  // The activation quantiser of FP8 linears, in place: E4M3 with one UE8M0 scale per `block` values
  // (32 in V4.1, 128 in V4; the last block may be partial), the q8 rule; v4 then rounds to bf16,
  // which changes nothing.
  void (*round_q8)(float* x, size_t n, size_t block);
};

// All instruction sets give the same bits.
const LatentRowOps& latent_row_ops(Isa isa);

}  // namespace deepinfer::kernels
