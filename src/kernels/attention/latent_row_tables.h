#pragma once

// What the bodies of the latent rows share: block sizes, scale rules and the values of scale codes.
// Internal to src/kernels.
//
// A block that holds a NaN or an infinity (E4M3 codes: or a value above 448 * 2^119) gets the scale
// code NaN and codes 0: all of it reads as NaN, in every format, and no bit depends on the
// instruction set. amax travels as the bits of |x|, whose order as integers is that of the values,
// with infinity and NaN above.
//
// Threads: any; pure functions.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/attention/latent_rows.h"

namespace deepinfer::kernels {

inline constexpr size_t kQ8Block = 32;
inline constexpr size_t kQ4eBlock = 16;
inline constexpr size_t kQ4uBlock = 32;
inline constexpr size_t kV4Block = 64;

inline constexpr uint8_t kUe8m0NaN = 0xFF;
inline constexpr uint8_t kE4m3NaN = 0x7F;
inline constexpr uint32_t kInfinityBits = 0x7F800000u;

// Where the parts of a v4 row begin: codes [codes], scales [scales, padding included], bf16 values.
struct V4Parts {
  size_t codes = 0;
  size_t scales = 0;

  explicit V4Parts(const LatentFormat& format)
      : codes(format.width - format.rope),
        scales(((codes + kV4Block - 1) / kV4Block + 7) / 8 * 8) {}
};

// The smallest power of two that is at least max(amax, floor) * factor, as a UE8M0 code.
inline uint8_t power_scale_code(uint32_t amax_bits, float floor, float factor) {
  if (amax_bits >= kInfinityBits) return kUe8m0NaN;
  const float v = std::max(std::bit_cast<float>(amax_bits), floor) * factor;
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  return static_cast<uint8_t>((bits >> 23) + ((bits & 0x7FFFFFu) != 0 ? 1u : 0u));
}
inline constexpr uint32_t kQ8TopBits = std::bit_cast<uint32_t>(448.0f * 0x1p119f);
inline uint8_t q8_scale_code(uint32_t amax_bits) {
  if (amax_bits > kQ8TopBits) return kUe8m0NaN;
  return power_scale_code(amax_bits, 1e-4f, 1.0f / 448.0f);
}
inline uint8_t q4u_scale_code(uint32_t amax_bits) {
  return power_scale_code(amax_bits, 6.0f * 0x1p-126f, 1.0f / 6.0f);
}
// E4M3(q4e_scale(amax)) is the scale; only for finite amax.
inline float q4e_scale(uint32_t amax_bits) {
  const float amax = std::max(std::bit_cast<float>(amax_bits), 6.0f * 0x1p-9f);
  return std::min(amax * (1.0f / 6.0f), 448.0f);
}

// Exact, as scales are 2^-126 at least and 2^126 at most.
inline float power_reciprocal(uint8_t code) { return std::bit_cast<float>((254u - code) << 23); }

// Value of every UE8M0 and E4M3 code.
namespace detail {
constexpr std::array<float, 256> ue8m0_values() {
  std::array<float, 256> out{};
  for (uint32_t code = 1; code < 255; ++code) out[code] = std::bit_cast<float>(code << 23);
  out[0] = 0x1p-127f;
  out[255] = std::bit_cast<float>(0x7FC00000u);
  return out;
}
constexpr std::array<float, 256> ue8m0_values_256() {
  std::array<float, 256> out{};
  out.fill(std::bit_cast<float>(0x7FC00000u));  // beyond what q8_scale_code() gives
  for (uint32_t code = 0; code < 247; ++code) out[code] = std::bit_cast<float>((code + 8) << 23);
  return out;
}
constexpr std::array<float, 256> e4m3_values() {
  std::array<float, 256> out{};
  for (uint32_t code = 0; code < 128; ++code) {
    const uint32_t exponent = code >> 3, mantissa = code & 7;
    const uint32_t normal = ((exponent + 120) << 23) | (mantissa << 20);
    const float value = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f
                                      : std::bit_cast<float>(code == 127 ? 0x7FC00000u : normal);
    out[code] = value;
    out[code + 128] = -value;
  }
  return out;
}
}  // namespace detail
inline constexpr std::array<float, 256> kUe8m0Values = detail::ue8m0_values();
// 256 times that, for values that were loaded 256 times too small.
inline constexpr std::array<float, 256> kUe8m0Values256 = detail::ue8m0_values_256();
inline constexpr std::array<float, 256> kE4m3Values = detail::e4m3_values();

namespace ref {
const LatentRowOps& latent_row_ops_table();
}
namespace avx2 {
const LatentRowOps& latent_row_ops_table();
}
namespace avx512 {
const LatentRowOps& latent_row_ops_table();
}
namespace emulated512 {
const LatentRowOps& latent_row_ops_table();
}

}  // namespace deepinfer::kernels
