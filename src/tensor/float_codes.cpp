#include <array>
#include <bit>
#include <cmath>

#include "tensor/dtype.h"

// Conversions work on the bits, so that neither the rounding mode nor flush-to-zero changes them.

namespace deepinfer {
namespace {

// Sign, then exponent bits with the given bias, then mantissa bits; no infinities or NaN.
constexpr float small_float(unsigned code, int mantissa_bits, int exponent_bits, int bias) {
  const unsigned mantissa = code & ((1u << mantissa_bits) - 1);
  const unsigned exponent = (code >> mantissa_bits) & ((1u << exponent_bits) - 1);
  const unsigned sign = (code >> (mantissa_bits + exponent_bits)) & 1;
  // value = significand * 2^power
  const unsigned significand = exponent == 0 ? mantissa : mantissa + (1u << mantissa_bits);
  const int power = static_cast<int>(exponent == 0 ? 1 : exponent) - bias - mantissa_bits;
  float value = static_cast<float>(significand);
  for (int i = power; i < 0; ++i) value *= 0.5f;
  for (int i = 0; i < power; ++i) value *= 2.0f;
  return sign ? -value : value;
}

constexpr float signed_nan(unsigned sign) {
  return std::bit_cast<float>(0x7fc00000u | (sign << 31));
}

constexpr std::array<float, 256> make_e4m3() {
  std::array<float, 256> table{};
  for (unsigned code = 0; code < 256; ++code) {
    table[code] = (code & 0x7f) == 0x7f ? signed_nan(code >> 7) : small_float(code, 3, 4, 7);
  }
  return table;
}

constexpr std::array<float, 256> make_e5m2() {
  std::array<float, 256> table{};
  for (unsigned code = 0; code < 256; ++code) {
    const unsigned sign = code >> 7;
    if ((code & 0x7f) > 0x7c) {
      table[code] = std::bit_cast<float>(0x7f800000u | ((code & 3) << 21) | (sign << 31));
    } else if ((code & 0x7f) == 0x7c) {
      table[code] = std::bit_cast<float>(0x7f800000u | (sign << 31));
    } else {
      table[code] = small_float(code, 2, 5, 15);
    }
  }
  return table;
}

constexpr std::array<float, 256> kE4m3 = make_e4m3();
constexpr std::array<float, 256> kE5m2 = make_e5m2();
constexpr std::array<float, 16> kE2m1 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// |value| as bits, at most the largest finite code, to a code without sign. `step` is the distance
// of the format's subnormal values: adding 2^23 * step leaves |value| / step, rounded to nearest
// even, in the low mantissa bits.
uint32_t round_magnitude(uint32_t bits, int mantissa_bits, int bias, float step) {
  const int shift = 23 - mantissa_bits;
  const uint32_t least_normal = static_cast<uint32_t>(127 - bias + 1) << 23;
  if (bits < least_normal) {
    const float magic = step * 8388608.0f;
    return std::bit_cast<uint32_t>(std::bit_cast<float>(bits) + magic) -
           std::bit_cast<uint32_t>(magic);
  }
  bits += (1u << (shift - 1)) - 1 + ((bits >> shift) & 1);
  return (bits >> shift) - (static_cast<uint32_t>(127 - bias) << mantissa_bits);
}

}  // namespace

float f16_to_f32(uint16_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x8000) << 16;
  const uint32_t magnitude = code & 0x7fff;
  // Subnormal halves are whole multiples of 2^-24, which a float holds as a normal number.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t normal = (magnitude << 13) + (magnitude >= 0x7c00 ? 224u << 23 : 112u << 23);
  return std::bit_cast<float>(sign | (magnitude < 0x400 ? subnormal : normal));
}

uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {
    return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  }
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // from 65520 on
  return static_cast<uint16_t>(sign | round_magnitude(magnitude, 10, 15, 0x1p-24f));
}

float bf16_to_f32(uint16_t code) { return std::bit_cast<float>(static_cast<uint32_t>(code) << 16); }

uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float e4m3_to_f32(uint8_t code) { return kE4m3[code]; }

uint8_t f32_to_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80;
  uint32_t magnitude = bits & 0x7fffffff;
  // The format has no infinity: it becomes NaN, so that it does not pass for a number.
  if (magnitude >= 0x7f800000) return static_cast<uint8_t>(sign | 0x7f);
  if (magnitude > std::bit_cast<uint32_t>(448.0f)) magnitude = std::bit_cast<uint32_t>(448.0f);
  return static_cast<uint8_t>(sign | round_magnitude(magnitude, 3, 7, 0x1p-9f));
}

float e5m2_to_f32(uint8_t code) { return kE5m2[code]; }

uint8_t f32_to_e5m2(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80;
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint8_t>(sign | 0x7f);
  if (magnitude == 0x7f800000) return static_cast<uint8_t>(sign | 0x7c);
  if (magnitude > std::bit_cast<uint32_t>(57344.0f)) magnitude = std::bit_cast<uint32_t>(57344.0f);
  return static_cast<uint8_t>(sign | round_magnitude(magnitude, 2, 15, 0x1p-16f));
}

float ue8m0_to_f32(uint8_t code) {
  if (code == 255) return signed_nan(0);
  // 2^-127 is a subnormal float.
  return std::bit_cast<float>(code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23);
}

float e2m1_to_f32(uint8_t nibble) { return kE2m1[nibble & 15]; }

}  // namespace deepinfer
