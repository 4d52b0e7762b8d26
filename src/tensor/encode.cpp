#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/dtype.h"

// The rounding rules of the `gguf` package's quantisers, in float, step by step. Values that are
// not finite have no code in a block format: they end up as some code of the block, never as a
// fault.

namespace deepinfer {
namespace {

constexpr size_t kBlock = 32;

void store_half(uint8_t* target, float value) {
  const uint16_t code = f32_to_f16(value);
  std::memcpy(target, &code, sizeof(code));
}

// 1/d, and 0 for d = 0.
float inverse(float d) { return d == 0.0f ? 0.0f : 1.0f / d; }

// Truncates; NaN becomes 0.
int truncated(float value, int highest) {
  if (!(value > 0.0f)) return 0;
  return value >= static_cast<float>(highest) ? highest : static_cast<int>(value);
}

float value_of_largest_magnitude(const float* x) {
  float largest = x[0];
  for (size_t i = 1; i < kBlock; ++i) {
    if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
  }
  return largest;
}

// codes [32] -> low nibbles [16]; with kFiveBits, bit 4 of each goes to high [4] first.
template <bool kFiveBits>
void store_codes(uint8_t* target, const int (&codes)[kBlock]) {
  if constexpr (kFiveBits) {
    uint32_t high = 0;
    for (size_t i = 0; i < kBlock; ++i) high |= static_cast<uint32_t>(codes[i] >> 4) << i;
    std::memcpy(target, &high, sizeof(high));
    target += sizeof(high);
  }
  for (size_t i = 0; i < 16; ++i) {
    target[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[i + 16] & 15) << 4);
  }
}

// Q4_0, Q5_0: d = (value of largest magnitude) / -2^(bits-1)
template <int kBits>
void encode_symmetric(const float* x, uint8_t* target) {
  constexpr int kOffset = 1 << (kBits - 1);
  const float d = value_of_largest_magnitude(x) / static_cast<float>(-kOffset);
  const float id = inverse(d);
  int codes[kBlock];
  for (size_t i = 0; i < kBlock; ++i) {
    codes[i] = truncated(x[i] * id + (static_cast<float>(kOffset) + 0.5f), 2 * kOffset - 1);
  }
  store_half(target, d);
  store_codes<kBits == 5>(target + 2, codes);
}

// Q4_1, Q5_1: d = (max - min) / (2^bits - 1)
template <int kBits>
void encode_affine(const float* x, uint8_t* target) {
  constexpr int kHighest = (1 << kBits) - 1;
  const auto [min, max] = std::minmax_element(x, x + kBlock);
  const float d = (*max - *min) / static_cast<float>(kHighest);
  const float id = inverse(d);
  int codes[kBlock];
  for (size_t i = 0; i < kBlock; ++i) {
    codes[i] = truncated((x[i] - *min) * id + 0.5f, kHighest);
  }
  store_half(target, d);
  store_half(target + 2, *min);
  store_codes<kBits == 5>(target + 4, codes);
}

void encode_q8_0(const float* x, uint8_t* target) {
  const float d = std::fabs(value_of_largest_magnitude(x)) / 127.0f;
  const float id = inverse(d);
  store_half(target, d);
  for (size_t i = 0; i < kBlock; ++i) {
    // Halves round away from zero.
    const float scaled = x[i] * id;
    const float magnitude = std::fabs(scaled);
    const float whole = std::floor(magnitude);
    const int code = truncated(whole + std::floor(2.0f * (magnitude - whole)), 127);
    target[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(scaled < 0.0f ? -code : code));
  }
}

// The power of two puts the largest magnitude at 4..8 times it; each value takes the nearest code,
// the lower number of two that are equally near.
void encode_mxfp4(const float* x, uint8_t* target) {
  const float largest = std::fabs(value_of_largest_magnitude(x));
  int exponent = 0;
  if (largest > 0.0f && std::isfinite(largest)) {
    exponent = std::clamp(static_cast<int>(std::floor(std::log2(largest))) - 2 + 127, 0, 254);
  }
  target[0] = static_cast<uint8_t>(exponent);
  const float d = ue8m0_to_f32(target[0]);
  int codes[kBlock];
  for (size_t i = 0; i < kBlock; ++i) {
    codes[i] = 0;
    float least = std::fabs(x[i]);
    for (uint8_t nibble = 1; nibble < 16; ++nibble) {
      const float error = std::fabs(d * e2m1_to_f32(nibble) - x[i]);
      if (error < least) {
        least = error;
        codes[i] = nibble;
      }
    }
  }
  store_codes<false>(target + 1, codes);
}

using BlockEncoder = void (*)(const float*, uint8_t*);

BlockEncoder block_encoder(DType dtype) {
  switch (dtype) {
    case DType::q4_0:
      return encode_symmetric<4>;
    case DType::q5_0:
      return encode_symmetric<5>;
    case DType::q4_1:
      return encode_affine<4>;
    case DType::q5_1:
      return encode_affine<5>;
    case DType::q8_0:
      return encode_q8_0;
    case DType::mxfp4:
      return encode_mxfp4;
    default:
      return nullptr;
  }
}

template <uint16_t (*encode)(float)>
void encode_sixteen(const float* values, std::byte* target, size_t elements) {
  for (size_t i = 0; i < elements; ++i) {
    const uint16_t code = encode(values[i]);
    std::memcpy(target + 2 * i, &code, sizeof(code));
  }
}

}  // namespace

bool can_encode(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 ||
         block_encoder(dtype) != nullptr;
}

void encode_row(DType dtype, const float* values, std::byte* target, size_t elements) {
  check(can_encode(dtype), "the format has no encoder");
  const DTypeInfo& info = dtype_info(dtype);
  check(elements % info.block_elements == 0, "a row must be whole blocks");
  if (elements == 0) return;
  if (dtype == DType::f32) {
    std::memcpy(target, values, elements * sizeof(float));
  } else if (dtype == DType::f16) {
    encode_sixteen<f32_to_f16>(values, target, elements);
  } else if (dtype == DType::bf16) {
    encode_sixteen<f32_to_bf16>(values, target, elements);
  } else {
    const BlockEncoder encode = block_encoder(dtype);
    auto* out = reinterpret_cast<uint8_t*>(target);
    for (size_t block = 0; block < elements / kBlock; ++block) {
      encode(values + block * kBlock, out + block * info.block_bytes);
    }
  }
}

}  // namespace deepinfer
