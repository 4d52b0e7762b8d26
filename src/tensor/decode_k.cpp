#include "tensor/decode.h"
#include "tensor/dtype.h"

// Super-blocks of 256 weights, cut into 16 x 16 (Q2_K, Q3_K, Q6_K) or 8 x 32 (Q4_K, Q5_K) with a
// small integer scale each.

namespace deepinfer::decode {
namespace {

constexpr size_t kBlock = 256;

float half(const uint8_t* source) { return f16_to_f32(load<uint16_t>(source)); }

// Eight 6-bit scales and minima in 12 bytes: the low six bits of bytes 0..7 are entries 0..3 of
// both; entries 4..7 have their low nibbles in bytes 8..11 and their top bits in bits 6..7 of 0..7.
struct ScalesAndMinima {
  float scale[8];
  float minimum[8];
};

ScalesAndMinima unpack_scales(const uint8_t* packed, float d, float dmin) {
  ScalesAndMinima out;
  for (size_t j = 0; j < 4; ++j) {
    out.scale[j] = d * static_cast<float>(packed[j] & 63);
    out.minimum[j] = dmin * static_cast<float>(packed[j + 4] & 63);
    out.scale[j + 4] = d * static_cast<float>((packed[j + 8] & 15) | ((packed[j] >> 2) & 48));
    out.minimum[j + 4] =
        dmin * static_cast<float>((packed[j + 8] >> 4) | ((packed[j + 4] >> 2) & 48));
  }
  return out;
}

}  // namespace

// scales [16], codes [64], d, dmin
void q2_k(const uint8_t* source, float* target, size_t units) {
  for (; units > 0; --units, source += 84, target += kBlock) {
    const float d = half(source + 80);
    const float dmin = half(source + 82);
    for (size_t sub = 0; sub < 16; ++sub) {
      const float scale = d * static_cast<float>(source[sub] & 15);
      const float minimum = dmin * static_cast<float>(source[sub] >> 4);
      const uint8_t* codes = source + 16 + 32 * (sub / 8) + 16 * (sub % 2);
      const unsigned shift = 2 * ((sub / 2) % 4);
      float* out = target + 16 * sub;
      for (size_t i = 0; i < 16; ++i) {
        out[i] = scale * static_cast<float>((codes[i] >> shift) & 3) - minimum;
      }
    }
  }
}

// high bits [32], codes [64], scales [12], d
void q3_k(const uint8_t* source, float* target, size_t units) {
  for (; units > 0; --units, source += 110, target += kBlock) {
    const uint8_t* packed = source + 96;
    const float d = half(source + 108);
    for (size_t sub = 0; sub < 16; ++sub) {
      const int low = sub < 8 ? packed[sub] & 15 : packed[sub - 8] >> 4;
      const int high = (packed[8 + sub % 4] >> (2 * (sub / 4))) & 3;
      const float scale = d * static_cast<float>((low | high << 4) - 32);
      const uint8_t* codes = source + 32 + 32 * (sub / 8) + 16 * (sub % 2);
      const uint8_t* mask = source + 16 * (sub % 2);
      const unsigned shift = 2 * ((sub / 2) % 4);
      const unsigned bit = static_cast<unsigned>(sub / 2);
      float* out = target + 16 * sub;
      for (size_t i = 0; i < 16; ++i) {
        const int code = (codes[i] >> shift) & 3;
        out[i] = scale * static_cast<float>(code - 4 + (((mask[i] >> bit) & 1) << 2));
      }
    }
  }
}

// d, dmin, scales and minima [12], codes [128]
void q4_k(const uint8_t* source, float* target, size_t units) {
  for (; units > 0; --units, source += 144, target += kBlock) {
    const ScalesAndMinima s = unpack_scales(source + 4, half(source), half(source + 2));
    for (size_t pair = 0; pair < 4; ++pair) {
      const uint8_t* codes = source + 16 + 32 * pair;
      float* out = target + 64 * pair;
      for (size_t i = 0; i < 32; ++i) {
        out[i] = s.scale[2 * pair] * static_cast<float>(codes[i] & 15) - s.minimum[2 * pair];
      }
      for (size_t i = 0; i < 32; ++i) {
        out[i + 32] =
            s.scale[2 * pair + 1] * static_cast<float>(codes[i] >> 4) - s.minimum[2 * pair + 1];
      }
    }
  }
}

// d, dmin, scales and minima [12], high bits [32], codes [128]
void q5_k(const uint8_t* source, float* target, size_t units) {
  for (; units > 0; --units, source += 176, target += kBlock) {
    const ScalesAndMinima s = unpack_scales(source + 4, half(source), half(source + 2));
    const uint8_t* high = source + 16;
    for (size_t sub = 0; sub < 8; ++sub) {
      const uint8_t* codes = source + 48 + 32 * (sub / 2);
      const unsigned shift = 4 * (sub % 2);
      float* out = target + 32 * sub;
      for (size_t i = 0; i < 32; ++i) {
        const int code = ((codes[i] >> shift) & 15) | ((high[i] >> sub) & 1) << 4;
        out[i] = s.scale[sub] * static_cast<float>(code) - s.minimum[sub];
      }
    }
  }
}

// low nibbles [128], high bit pairs [64], int8 scales [16], d
void q6_k(const uint8_t* source, float* target, size_t units) {
  for (; units > 0; --units, source += 210, target += kBlock) {
    const float d = half(source + 208);
    for (size_t sub = 0; sub < 16; ++sub) {
      const size_t group = sub / 8;        // 128 weights
      const size_t quarter = sub / 2 % 4;  // 32 weights of the group
      const uint8_t* low = source + 64 * group + 32 * (quarter % 2) + 16 * (sub % 2);
      const uint8_t* high = source + 128 + 32 * group + 16 * (sub % 2);
      const unsigned low_shift = quarter < 2 ? 0 : 4;
      const unsigned high_shift = static_cast<unsigned>(2 * quarter);
      const float scale = d * static_cast<float>(static_cast<int8_t>(source[192 + sub]));
      float* out = target + 16 * sub;
      for (size_t i = 0; i < 16; ++i) {
        const int code = ((low[i] >> low_shift) & 15) | ((high[i] >> high_shift) & 3) << 4;
        out[i] = scale * static_cast<float>(code - 32);
      }
    }
  }
}

}  // namespace deepinfer::decode
