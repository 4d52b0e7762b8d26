#include "kernels/matmul/quantize_row.h"

#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace deepinfer::kernels {
namespace {

// Sums of a block's codes, by k mod 4 in {0,1} and {2,3} and by half of 16.
struct BlockSums {
  int32_t part[2][2];  // [half][pair of k mod 4]
  int32_t half(int h) const { return part[h][0] + part[h][1]; }
  int32_t pair(int p) const { return part[0][p] + part[1][p]; }
  int32_t all() const { return half(0) + half(1); }
};

struct Block {
  alignas(32) int8_t codes[32];
  float scale;
  BlockSums sums;
};

uint32_t offset_word(int32_t offset, int32_t low, int32_t high, bool paired) {
  if (!paired) return static_cast<uint32_t>(-offset * (low + high));
  return (static_cast<uint32_t>(-offset * low) & 0xFFFFu) |
         (static_cast<uint32_t>(-offset * high) << 16);
}

void write_record(const Block& block, const Int8Target& t, uint32_t* record) {
  const size_t m = t.padded;
  for (size_t step = 0; step < 8; ++step) {
    uint32_t word;
    std::memcpy(&word, block.codes + step * 4, 4);
    record[step * m + t.row] = word;
  }
  record[8 * m + t.row] = std::bit_cast<uint32_t>(block.scale);
  size_t plane = 9;
  const auto put = [&](uint32_t word) { record[plane++ * m + t.row] = word; };
  const BlockSums& s = block.sums;
  if (t.forms & kPlaneSum) {
    put(std::bit_cast<uint32_t>(block.scale * static_cast<float>(s.all())));
  }
  if (t.forms & kPlaneOffset8) put(offset_word(8, s.pair(0), s.pair(1), t.paired_planes));
  if (t.forms & kPlaneOffset12) put(offset_word(12, s.pair(0), s.pair(1), t.paired_planes));
  if (t.forms & kPlaneOffset128) put(offset_word(128, s.pair(0), s.pair(1), t.paired_planes));
  if (t.forms & kPlaneHalves32) {
    put(offset_word(32, s.part[0][0], s.part[0][1], t.paired_planes));
    put(offset_word(32, s.part[1][0], s.part[1][1], t.paired_planes));
  }
}

// The scale and the factor for the largest magnitude, whose bits are given (NaN sorts above
// infinity).
float scale_of(int32_t magnitude_bits, float* factor) {
  const float amax = std::bit_cast<float>(magnitude_bits);
  *factor = amax > 0 ? 127.0f / amax : 0.0f;
  if (!(amax <= std::numeric_limits<float>::max())) {
    *factor = 0.0f;
    return std::numeric_limits<float>::quiet_NaN();
  }
  // A subnormal amax has an infinite factor: such a block counts as zero.
  if (!std::isfinite(*factor)) {
    *factor = 0.0f;
    return 0.0f;
  }
  return amax / 127.0f;
}

void block_ref(const float* values, size_t count, Block& block) {
  int32_t magnitude = 0;
  for (size_t k = 0; k < count; ++k) {
    magnitude = std::max(magnitude, std::bit_cast<int32_t>(values[k]) & 0x7FFFFFFF);
  }
  float factor;
  block.scale = scale_of(magnitude, &factor);
  std::memset(&block.sums, 0, sizeof block.sums);
  for (size_t k = 0; k < 32; ++k) {
    const float x = k < count ? values[k] * factor : 0.0f;
    const int code = std::isfinite(x) ? static_cast<int>(std::nearbyintf(x)) : 0;
    block.codes[k] = static_cast<int8_t>(code);
    block.sums.part[k / 16][(k % 4) / 2] += code;
  }
}

#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)

void block_avx2(const float* values, Block& block) {
  const __m256 x0 = _mm256_loadu_ps(values), x1 = _mm256_loadu_ps(values + 8);
  const __m256 x2 = _mm256_loadu_ps(values + 16), x3 = _mm256_loadu_ps(values + 24);
  const __m256i clear = _mm256_set1_epi32(0x7FFFFFFF);
  const auto bits = [&](__m256 x) { return _mm256_and_si256(_mm256_castps_si256(x), clear); };
  const __m256i most =
      _mm256_max_epi32(_mm256_max_epi32(bits(x0), bits(x1)), _mm256_max_epi32(bits(x2), bits(x3)));
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
  float factor;
  block.scale = scale_of(_mm_cvtsi128_si32(m), &factor);
  const __m256 f = _mm256_set1_ps(factor);
  // A factor of zero times infinity is NaN, converted to INT_MIN: masked to 0 like the reference.
  const __m256i keep = _mm256_set1_epi32(factor == 0.0f ? 0 : -1);
  const auto code = [&](__m256 x) {
    return _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(x, f)), keep);
  };
  const __m256i low = _mm256_packs_epi32(code(x0), code(x1));
  const __m256i high = _mm256_packs_epi32(code(x2), code(x3));
  const __m256i packed = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
                                                     _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_store_si256(reinterpret_cast<__m256i*>(block.codes), packed);
  // Pairs (k, k+1) as int16, one lane of 128 bits a half; then lanes of equal k mod 4 added.
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), packed);
  const __m256i even = _mm256_srai_epi32(_mm256_slli_epi32(pairs, 16), 16);
  const __m256i odd = _mm256_srai_epi32(pairs, 16);
  __m256i sums = _mm256_hadd_epi32(even, odd);
  sums = _mm256_hadd_epi32(sums, sums);  // per half: even sum, odd sum, the same again
  block.sums.part[0][0] = _mm256_extract_epi32(sums, 0);
  block.sums.part[0][1] = _mm256_extract_epi32(sums, 1);
  block.sums.part[1][0] = _mm256_extract_epi32(sums, 4);
  block.sums.part[1][1] = _mm256_extract_epi32(sums, 5);
}

#pragma clang attribute pop

void quantize_block(Isa isa, const float* values, size_t count, Block& block) {
  if (isa == Isa::ref || count < 32) {
    block_ref(values, count, block);
  } else {
    block_avx2(values, block);
  }
}

}  // namespace

void quantize_row(Isa isa, const float* values, size_t inputs, const Int8Target& target) noexcept {
  const size_t record_dwords = int8_record_dwords(target.forms, 0) * target.padded;
  const bool refined = (target.forms & kRefined) != 0;
  Int8Target second = target;
  ++second.row;
  uint32_t* record = target.group;
  Block block;
  for (size_t k = 0; k < inputs; k += 32, record += record_dwords) {
    const size_t count = inputs - k < 32 ? inputs - k : 32;
    quantize_block(isa, values + k, count, block);
    write_record(block, target, record);
    if (!refined) continue;
    float left[32];
    for (size_t i = 0; i < count; ++i) {
      left[i] = std::fma(-block.scale, static_cast<float>(block.codes[i]), values[k + i]);
    }
    quantize_block(isa, left, count, block);
    write_record(block, second, record);
  }
}

}  // namespace deepinfer::kernels
