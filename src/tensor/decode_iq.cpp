#include <bit>

#include "tensor/decode.h"
#include "tensor/dtype.h"
#include "tensor/iq_tables.h"

// Codes that select groups of 4 or 8 magnitudes from a grid, with a sign bit per weight; IQ4
// selects single values. Super-blocks of 256 weights except IQ4_NL (32).

namespace deepinfer::decode {
namespace {

constexpr size_t kBlock = 256;

float half(const uint8_t* source) { return f16_to_f32(load<uint16_t>(source)); }

constexpr float kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

// Seven stored signs; the eighth makes their number even.
uint8_t even_signs(uint32_t seven) {
  return static_cast<uint8_t>(seven | (std::popcount(seven) & 1u) << 7);
}

template <size_t kCount>
void put(float* out, float scale, const std::array<uint8_t, kCount>& grid, unsigned signs) {
  for (size_t i = 0; i < kCount; ++i) {
    const float sign = (signs >> i) & 1 ? -1.0f : 1.0f;
    out[i] = scale * static_cast<float>(grid[i]) * sign;
  }
}

void put_iq4(float* out, float scale, const uint8_t* codes) {
  for (size_t i = 0; i < 16; ++i) {
    out[i] = scale * kIq4Values[codes[i] & 15];
    out[i + 16] = scale * kIq4Values[codes[i] >> 4];
  }
}

unsigned nibble(const uint8_t* packed, size_t index) {
  return (packed[index / 2] >> (4 * (index % 2))) & 15u;
}

}  // namespace

// d, codes [16]
void iq4_nl(const uint8_t* source, float* target, size_t units) {
  for (; units > 0; --units, source += 18, target += 32) put_iq4(target, half(source), source + 2);
}

// d, high scale bits u16, low scale nibbles [4], codes [128]
void iq4_xs(const uint8_t* source, float* target, size_t units) {
  for (; units > 0; --units, source += 136, target += kBlock) {
    const float d = half(source);
    const unsigned high = load<uint16_t>(source + 2);
    for (size_t sub = 0; sub < 8; ++sub) {
      const unsigned scale = nibble(source + 4, sub) | ((high >> (2 * sub)) & 3) << 4;
      put_iq4(target + 32 * sub, d * static_cast<float>(static_cast<int>(scale) - 32),
              source + 8 + 16 * sub);
    }
  }
}

// d, then for each 32 weights: four grid indices [4 x u8], u32 = scale << 28 | four 7-bit signs
void iq2_xxs(const uint8_t* source, float* target, size_t units) {
  for (; units > 0; --units, source += 66, target += kBlock) {
    const float d = half(source);
    for (size_t sub = 0; sub < 8; ++sub) {
      const uint8_t* indices = source + 2 + 8 * sub;
      const uint32_t packed = load<uint32_t>(indices + 4);
      const float scale = d * (0.5f + static_cast<float>(packed >> 28)) * 0.25f;
      for (size_t k = 0; k < 4; ++k) {
        put(target + 32 * sub + 8 * k, scale, kIq2XxsGrid[indices[k]],
            even_signs((packed >> (7 * k)) & 127));
      }
    }
  }
}

// d, codes u16 [32] = signs << 9 | index, scale nibbles [8] for 16 weights each
void iq2_xs(const uint8_t* source, float* target, size_t units) {
  for (; units > 0; --units, source += 74, target += kBlock) {
    const float d = half(source);
    for (size_t k = 0; k < 32; ++k) {
      const unsigned code = load<uint16_t>(source + 2 + 2 * k);
      const float scale = d * (0.5f + static_cast<float>(nibble(source + 66, k / 2))) * 0.25f;
      put(target + 8 * k, scale, kIq2XsGrid[code & 511], even_signs(code >> 9));
    }
  }
}

// d, low index bytes [32], signs [32], high index bits [8], scale nibbles [8]
void iq2_s(const uint8_t* source, float* target, size_t units) {
  for (; units > 0; --units, source += 82, target += kBlock) {
    const float d = half(source);
    for (size_t k = 0; k < 32; ++k) {
      const unsigned high = (source[66 + k / 4] >> (2 * (k % 4))) & 3u;
      const float scale = d * (0.5f + static_cast<float>(nibble(source + 74, k / 2))) * 0.25f;
      put(target + 8 * k, scale, kIq2SGrid[source[2 + k] | high << 8], source[34 + k]);
    }
  }
}

// d, grid indices [64], for each 32 weights u32 = scale << 28 | four 7-bit signs
void iq3_xxs(const uint8_t* source, float* target, size_t units) {
  for (; units > 0; --units, source += 98, target += kBlock) {
    const float d = half(source);
    for (size_t sub = 0; sub < 8; ++sub) {
      const uint8_t* indices = source + 2 + 8 * sub;
      const uint32_t packed = load<uint32_t>(source + 66 + 4 * sub);
      const float scale = d * (0.5f + static_cast<float>(packed >> 28)) * 0.5f;
      for (size_t k = 0; k < 4; ++k) {
        const unsigned signs = even_signs((packed >> (7 * k)) & 127);
        float* out = target + 32 * sub + 8 * k;
        put(out, scale, kIq3XxsGrid[indices[2 * k]], signs);
        put(out + 4, scale, kIq3XxsGrid[indices[2 * k + 1]], signs >> 4);
      }
    }
  }
}

// d, low index bytes [64], high index bits [8], signs [32], scale nibbles [4] for 32 weights each
void iq3_s(const uint8_t* source, float* target, size_t units) {
  for (; units > 0; --units, source += 110, target += kBlock) {
    const float d = half(source);
    for (size_t k = 0; k < 64; ++k) {
      const unsigned high = (source[66 + k / 8] >> (k % 8)) & 1u;
      const unsigned signs = source[74 + k / 2] >> (4 * (k % 2));
      const float scale = d * static_cast<float>(1 + 2 * nibble(source + 106, k / 8));
      put(target + 4 * k, scale, kIq3SGrid[source[2 + k] | high << 8], signs);
    }
  }
}

}  // namespace deepinfer::decode
