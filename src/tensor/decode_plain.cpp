#include <array>

#include "tensor/decode.h"
#include "tensor/dtype.h"

namespace deepinfer::decode {

void f32(const uint8_t* source, float* target, size_t units) {
  if (units > 0) std::memcpy(target, source, units * sizeof(float));
}

void f16(const uint8_t* source, float* target, size_t units) {
  // f16_to_f32 written out, so that the loop becomes vector code.
  for (size_t i = 0; i < units; ++i) {
    const uint32_t code = load<uint16_t>(source + 2 * i);
    const uint32_t magnitude = code & 0x7fff;
    const float scaled = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
    uint32_t bits;
    std::memcpy(&bits, &scaled, sizeof(bits));
    const uint32_t normal = (magnitude << 13) + (magnitude >= 0x7c00 ? 224u << 23 : 112u << 23);
    bits = ((code & 0x8000) << 16) | (magnitude < 0x400 ? bits : normal);
    std::memcpy(target + i, &bits, sizeof(bits));
  }
}

void bf16(const uint8_t* source, float* target, size_t units) {
  for (size_t i = 0; i < units; ++i) {
    const uint32_t bits = static_cast<uint32_t>(load<uint16_t>(source + 2 * i)) << 16;
    std::memcpy(target + i, &bits, sizeof(bits));
  }
}

void i8(const uint8_t* source, float* target, size_t units) {
  for (size_t i = 0; i < units; ++i) target[i] = static_cast<float>(static_cast<int8_t>(source[i]));
}

void u8(const uint8_t* source, float* target, size_t units) {
  for (size_t i = 0; i < units; ++i) target[i] = static_cast<float>(source[i]);
}

namespace {

template <float (*value)(uint8_t)>
std::array<float, 256> table_of() {
  std::array<float, 256> table;
  for (unsigned code = 0; code < 256; ++code) table[code] = value(static_cast<uint8_t>(code));
  return table;
}

template <float (*value)(uint8_t)>
void by_table(const uint8_t* source, float* target, size_t units) {
  static const std::array<float, 256> table = table_of<value>();
  for (size_t i = 0; i < units; ++i) target[i] = table[source[i]];
}

}  // namespace

void f8_e4m3(const uint8_t* source, float* target, size_t units) {
  by_table<e4m3_to_f32>(source, target, units);
}

void f8_e5m2(const uint8_t* source, float* target, size_t units) {
  by_table<e5m2_to_f32>(source, target, units);
}

void f8_e8m0(const uint8_t* source, float* target, size_t units) {
  by_table<ue8m0_to_f32>(source, target, units);
}

void f4_e2m1(const uint8_t* source, float* target, size_t units) {
  std::array<float, 16> table;
  for (uint8_t nibble = 0; nibble < 16; ++nibble) table[nibble] = e2m1_to_f32(nibble);
  for (size_t i = 0; i < units; ++i) {
    target[2 * i] = table[source[i] & 15];
    target[2 * i + 1] = table[source[i] >> 4];
  }
}

}  // namespace deepinfer::decode
