#pragma once

// Storage formats of weights and cache rows: names, block sizes, and the exact value of every code.
//
// A row of a block format is ceil(elements / block_elements) blocks; files require elements to be a
// multiple of block_elements. Sources of the layouts: the GGML formats as the `gguf` package
// decodes them (tests/golden/quant), OCP MX for E2M1/UE8M0, OCP FP8 for E4M3FN/E5M2.
//
// Threads: any; everything here is a pure function.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace deepinfer {

enum class DType : uint8_t {
  f32,
  f16,
  bf16,
  f64,
  i8,
  i16,
  i32,
  i64,
  u8,
  boolean,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq3_xxs,
  iq3_s,
  mxfp4,  // GGML MXFP4: 32 x E2M1 with one UE8M0 byte
  nvfp4,  // GGML NVFP4
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,  // UE8M0: an exponent byte
  f4_e2m1,  // two codes a byte, low nibble first
};
inline constexpr size_t kDTypeCount = static_cast<size_t>(DType::f4_e2m1) + 1;

struct DTypeInfo {
  std::string_view name;  // "Q4_0", "BF16", "F8_E4M3": as the file formats spell it
  size_t block_elements;  // 1 for plain formats
  size_t block_bytes;
  bool decodable;  // decode_row() knows it (false for integers other than i8/u8...)
};

const DTypeInfo& dtype_info(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);

// Bytes of `elements` values stored as one row; elements must be a multiple of block_elements.
size_t row_bytes(DType dtype, size_t elements);

// source: row_bytes(dtype, elements) bytes -> target [elements], exact (one float per code; where
// the format multiplies two scales, as the GGML reference orders it). Requires decodable.
void decode_row(DType dtype, const std::byte* source, float* target, size_t elements);

// Single values; conversions to narrower formats round to nearest even, NaN stays NaN.
float f16_to_f32(uint16_t code);
uint16_t f32_to_f16(float value);
float bf16_to_f32(uint16_t code);
uint16_t f32_to_bf16(float value);
float e4m3_to_f32(uint8_t code);
uint8_t f32_to_e4m3(float value);  // finite values beyond 448 saturate
float e5m2_to_f32(uint8_t code);
uint8_t f32_to_e5m2(float value);  // finite values beyond 57344 saturate
float ue8m0_to_f32(uint8_t code);  // 255 is NaN
float e2m1_to_f32(uint8_t nibble);

// The quantisers of the `gguf` package, for tests, generators and `pack`:
// values [elements] -> target. Supported: F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 MXFP4.
bool can_encode(DType dtype);
void encode_row(DType dtype, const float* values, std::byte* target, size_t elements);

}  // namespace deepinfer
