#pragma once

// The row decoders behind decode_row(), one per format: `units` blocks (elements for plain formats)
// from source to target [units * block_elements]. Multiplications are ordered as the `gguf` package
// orders them, bit for bit. Internal to src/tensor.
//
// Threads: any; pure functions.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace deepinfer::decode {

using Decoder = void (*)(const uint8_t* source, float* target, size_t units);

void f32(const uint8_t* source, float* target, size_t units);
void f16(const uint8_t* source, float* target, size_t units);
void bf16(const uint8_t* source, float* target, size_t units);
void i8(const uint8_t* source, float* target, size_t units);
void u8(const uint8_t* source, float* target, size_t units);
void f8_e4m3(const uint8_t* source, float* target, size_t units);
void f8_e5m2(const uint8_t* source, float* target, size_t units);
void f8_e8m0(const uint8_t* source, float* target, size_t units);
void f4_e2m1(const uint8_t* source, float* target, size_t units);

void q4_0(const uint8_t* source, float* target, size_t units);
void q4_1(const uint8_t* source, float* target, size_t units);
void q5_0(const uint8_t* source, float* target, size_t units);
void q5_1(const uint8_t* source, float* target, size_t units);
void q8_0(const uint8_t* source, float* target, size_t units);
void mxfp4(const uint8_t* source, float* target, size_t units);
void nvfp4(const uint8_t* source, float* target, size_t units);

void q2_k(const uint8_t* source, float* target, size_t units);
void q3_k(const uint8_t* source, float* target, size_t units);
void q4_k(const uint8_t* source, float* target, size_t units);
void q5_k(const uint8_t* source, float* target, size_t units);
void q6_k(const uint8_t* source, float* target, size_t units);

void iq4_nl(const uint8_t* source, float* target, size_t units);
void iq4_xs(const uint8_t* source, float* target, size_t units);
void iq2_xxs(const uint8_t* source, float* target, size_t units);
void iq2_xs(const uint8_t* source, float* target, size_t units);
void iq2_s(const uint8_t* source, float* target, size_t units);
void iq3_xxs(const uint8_t* source, float* target, size_t units);
void iq3_s(const uint8_t* source, float* target, size_t units);

// Rows lie at any address in a file.
template <class T>
T load(const uint8_t* source) {
  T value;
  std::memcpy(&value, source, sizeof(T));
  return value;
}

}  // namespace deepinfer::decode
