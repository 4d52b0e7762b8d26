// The rows of a compressed cache as their definition reads, one value at a time.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/attention/latent_row_tables.h"
#include "tensor/dtype.h"

namespace deepinfer::kernels::ref {
namespace {

uint8_t byte_at(const std::byte* row, size_t at) { return std::to_integer<uint8_t>(row[at]); }

uint32_t amax_bits(const float* x, size_t n) {
  uint32_t most = 0;
  for (size_t i = 0; i < n; ++i) most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFu);
  return most;
}

// Nearest E2M1, ties to even, saturating.
uint8_t to_e2m1(float x) {
  const float a = std::abs(x);
  uint8_t code = 0;
  for (uint8_t next = 1; next < 8; ++next) {
    const float middle = 0.5f * (e2m1_to_f32(code) + e2m1_to_f32(next));
    if (a > middle || (a == middle && next % 2 == 0)) code = next;
  }
  return static_cast<uint8_t>(code | (std::signbit(x) ? 8 : 0));
}

// E4M3 codes with one UE8M0 scale per block.
void encode_e4m3(const float* x, size_t n, size_t block, std::byte* codes, std::byte* scales) {
  for (size_t at = 0; at < n; at += block, ++scales) {
    const size_t count = std::min(block, n - at);
    const uint8_t scale = q8_scale_code(amax_bits(x + at, count));
    *scales = std::byte{scale};
    for (size_t i = at; i < at + count; ++i) {
      codes[i] =
          std::byte{scale == kUe8m0NaN ? uint8_t{0} : f32_to_e4m3(x[i] * power_reciprocal(scale))};
    }
  }
}

void decode_e4m3(const std::byte* codes, const std::byte* scales, size_t n, size_t block,
                 float* x) {
  for (size_t i = 0; i < n; ++i) {
    x[i] = e4m3_to_f32(byte_at(codes, i)) * ue8m0_to_f32(byte_at(scales, i / block));
  }
}

// E2M1 pairs; scale_of(amax bits) gives (scale code, reciprocal).
template <class ScaleOf>
void encode_e2m1(const float* x, size_t n, size_t block, std::byte* row, ScaleOf scale_of) {
  std::byte* scales = row + n / 2;
  for (size_t at = 0; at < n; at += block, ++scales) {
    const auto [code, reciprocal] = scale_of(amax_bits(x + at, block));
    *scales = std::byte{code};
    for (size_t i = at; i < at + block; i += 2) {
      const uint8_t low = reciprocal == 0.0f ? 0 : to_e2m1(x[i] * reciprocal);
      const uint8_t high = reciprocal == 0.0f ? 0 : to_e2m1(x[i + 1] * reciprocal);
      row[i / 2] = std::byte{static_cast<uint8_t>(low | (high << 4))};
    }
  }
}

struct Scale {
  uint8_t code;
  float reciprocal;  // 0 where the block is NaN
};
Scale q4e_of(uint32_t bits) {
  if (bits >= kInfinityBits) return {kE4m3NaN, 0.0f};
  const uint8_t code = f32_to_e4m3(q4e_scale(bits));
  return {code, 1.0f / e4m3_to_f32(code)};
}
Scale q4u_of(uint32_t bits) {
  const uint8_t code = q4u_scale_code(bits);
  return {code, code == kUe8m0NaN ? 0.0f : power_reciprocal(code)};
}

template <class ScaleValue>
void decode_e2m1(const std::byte* row, size_t n, size_t block, float* x, ScaleValue scale_value) {
  for (size_t i = 0; i < n; ++i) {
    const uint8_t pair = byte_at(row, i / 2);
    const auto nibble = static_cast<uint8_t>(i % 2 == 0 ? pair & 15 : pair >> 4);
    x[i] = e2m1_to_f32(nibble) * scale_value(byte_at(row, n / 2 + i / block));
  }
}

void encode_bf16(const float* x, size_t n, std::byte* row) {
  for (size_t i = 0; i < n; ++i) {
    const uint16_t code = f32_to_bf16(x[i]);
    std::memcpy(row + 2 * i, &code, sizeof(code));
  }
}

void decode_bf16(const std::byte* row, size_t n, float* x) {
  for (size_t i = 0; i < n; ++i) {
    uint16_t code = 0;
    std::memcpy(&code, row + 2 * i, sizeof(code));
    x[i] = bf16_to_f32(code);
  }
}

void encode(const LatentFormat& format, const float* x, std::byte* row) {
  const size_t n = format.width;
  switch (format.code) {
    case LatentCode::f32:
      std::memcpy(row, x, n * sizeof(float));
      return;
    case LatentCode::bf16:
      return encode_bf16(x, n, row);
    case LatentCode::q8:
      return encode_e4m3(x, n, kQ8Block, row, row + n);
    case LatentCode::q4e:
      return encode_e2m1(x, n, kQ4eBlock, row, q4e_of);
    case LatentCode::q4u:
      return encode_e2m1(x, n, kQ4uBlock, row, q4u_of);
    case LatentCode::v4: {
      const V4Parts parts(format);
      std::fill_n(row + parts.codes, parts.scales, std::byte{0});
      encode_e4m3(x, parts.codes, kV4Block, row, row + parts.codes);
      return encode_bf16(x + parts.codes, format.rope, row + parts.codes + parts.scales);
    }
  }
}

void decode(const LatentFormat& format, const std::byte* row, float* x) {
  const size_t n = format.width;
  switch (format.code) {
    case LatentCode::f32:
      std::memcpy(x, row, n * sizeof(float));
      return;
    case LatentCode::bf16:
      return decode_bf16(row, n, x);
    case LatentCode::q8:
      return decode_e4m3(row, row + n, n, kQ8Block, x);
    case LatentCode::q4e:
      return decode_e2m1(row, n, kQ4eBlock, x, e4m3_to_f32);
    case LatentCode::q4u:
      return decode_e2m1(row, n, kQ4uBlock, x, ue8m0_to_f32);
    case LatentCode::v4: {
      const V4Parts parts(format);
      decode_e4m3(row, row + parts.codes, parts.codes, kV4Block, x);
      return decode_bf16(row + parts.codes + parts.scales, format.rope, x + parts.codes);
    }
  }
}

void round(const LatentFormat& format, float* x) {
  if (format.code == LatentCode::f32) return;
  std::vector<std::byte> row(format.row_bytes());
  encode(format, x, row.data());
  decode(format, row.data(), x);
}

void round_bf16(float* x, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] = bf16_to_f32(f32_to_bf16(x[i]));
}

void round_q8(float* x, size_t n, size_t block) {
  std::vector<std::byte> codes(n), scales((n + block - 1) / block);
  encode_e4m3(x, n, block, codes.data(), scales.data());
  decode_e4m3(codes.data(), scales.data(), n, block, x);
}

}  // namespace

const LatentRowOps& latent_row_ops_table() {
  static constexpr LatentRowOps table = {.encode = encode,
                                         .decode = decode,
                                         .round = round,
                                         .round_bf16 = round_bf16,
                                         .round_q8 = round_q8};
  return table;
}

}  // namespace deepinfer::kernels::ref
