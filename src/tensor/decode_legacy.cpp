#include <bit>

#include "tensor/decode.h"
#include "tensor/dtype.h"

// Blocks of 32 weights with one scale (NVFP4: 64 with four). Byte i of the codes holds weight i in
// its low nibble and weight i + 16 in its high one.

namespace deepinfer::decode {
namespace {

constexpr size_t kBlock = 32;

float half(const uint8_t* source) { return f16_to_f32(load<uint16_t>(source)); }

// E2M1 doubled, so that it is an integer; the scales below are halved in turn.
constexpr int8_t kTwiceE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 2^(code - 128), subnormal for codes 0 and 1.
float half_of_ue8m0(uint8_t code) {
  return std::bit_cast<float>(code < 2 ? 0x00200000u << code : (code - 1u) << 23);
}

// Half of an E4M3 value whose sign bit is ignored; 0x7f counts as zero.
float half_of_ue4m3(uint8_t code) { return code == 0x7f ? 0.0f : e4m3_to_f32(code & 0x7f) * 0.5f; }

}  // namespace

void q4_0(const uint8_t* source, float* target, size_t units) {
  for (; units > 0; --units, source += 18, target += kBlock) {
    const float d = half(source);
    const uint8_t* codes = source + 2;
    for (size_t i = 0; i < 16; ++i) {
      target[i] = d * static_cast<float>((codes[i] & 15) - 8);
      target[i + 16] = d * static_cast<float>((codes[i] >> 4) - 8);
    }
  }
}

void q4_1(const uint8_t* source, float* target, size_t units) {
  for (; units > 0; --units, source += 20, target += kBlock) {
    const float d = half(source);
    const float m = half(source + 2);
    const uint8_t* codes = source + 4;
    for (size_t i = 0; i < 16; ++i) {
      target[i] = d * static_cast<float>(codes[i] & 15) + m;
      target[i + 16] = d * static_cast<float>(codes[i] >> 4) + m;
    }
  }
}

void q5_0(const uint8_t* source, float* target, size_t units) {
  for (; units > 0; --units, source += 22, target += kBlock) {
    const float d = half(source);
    const uint32_t high = load<uint32_t>(source + 2);
    const uint8_t* codes = source + 6;
    for (size_t i = 0; i < 16; ++i) {
      const int low16 = static_cast<int>((codes[i] & 15) | ((high >> i) & 1) << 4);
      const int high16 = static_cast<int>((codes[i] >> 4) | ((high >> (i + 16)) & 1) << 4);
      target[i] = d * static_cast<float>(low16 - 16);
      target[i + 16] = d * static_cast<float>(high16 - 16);
    }
  }
}

void q5_1(const uint8_t* source, float* target, size_t units) {
  for (; units > 0; --units, source += 24, target += kBlock) {
    const float d = half(source);
    const float m = half(source + 2);
    const uint32_t high = load<uint32_t>(source + 4);
    const uint8_t* codes = source + 8;
    for (size_t i = 0; i < 16; ++i) {
      const int low16 = static_cast<int>((codes[i] & 15) | ((high >> i) & 1) << 4);
      const int high16 = static_cast<int>((codes[i] >> 4) | ((high >> (i + 16)) & 1) << 4);
      target[i] = d * static_cast<float>(low16) + m;
      target[i + 16] = d * static_cast<float>(high16) + m;
    }
  }
}

void q8_0(const uint8_t* source, float* target, size_t units) {
  for (; units > 0; --units, source += 34, target += kBlock) {
    const float d = half(source);
    const uint8_t* codes = source + 2;
    for (size_t i = 0; i < kBlock; ++i) {
      target[i] = static_cast<float>(static_cast<int8_t>(codes[i])) * d;
    }
  }
}

void mxfp4(const uint8_t* source, float* target, size_t units) {
  for (; units > 0; --units, source += 17, target += kBlock) {
    const float d = half_of_ue8m0(source[0]);
    const uint8_t* codes = source + 1;
    for (size_t i = 0; i < 16; ++i) {
      target[i] = d * static_cast<float>(kTwiceE2m1[codes[i] & 15]);
      target[i + 16] = d * static_cast<float>(kTwiceE2m1[codes[i] >> 4]);
    }
  }
}

void nvfp4(const uint8_t* source, float* target, size_t units) {
  for (; units > 0; --units, source += 36, target += 64) {
    for (size_t group = 0; group < 4; ++group) {
      const float d = half_of_ue4m3(source[group]);
      const uint8_t* codes = source + 4 + 8 * group;
      float* out = target + 16 * group;
      for (size_t i = 0; i < 8; ++i) {
        out[i] = d * static_cast<float>(kTwiceE2m1[codes[i] & 15]);
        out[i + 8] = d * static_cast<float>(kTwiceE2m1[codes[i] >> 4]);
      }
    }
  }
}

}  // namespace deepinfer::decode
