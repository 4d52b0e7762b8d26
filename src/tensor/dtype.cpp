#include "tensor/dtype.h"

#include <array>

#include "base/check.h"
#include "tensor/decode.h"

namespace deepinfer {
namespace {

struct Format {
  DTypeInfo info;
  decode::Decoder decoder;  // null when not decodable
};

constexpr Format format(std::string_view name, size_t block_elements, size_t block_bytes,
                        decode::Decoder decoder) {
  return {{name, block_elements, block_bytes, decoder != nullptr}, decoder};
}

// In the order of DType.
constexpr std::array<Format, kDTypeCount> kFormats = {{
    format("F32", 1, 4, decode::f32),
    format("F16", 1, 2, decode::f16),
    format("BF16", 1, 2, decode::bf16),
    format("F64", 1, 8, nullptr),
    format("I8", 1, 1, decode::i8),
    format("I16", 1, 2, nullptr),
    format("I32", 1, 4, nullptr),
    format("I64", 1, 8, nullptr),
    format("U8", 1, 1, decode::u8),
    format("BOOL", 1, 1, nullptr),
    format("Q4_0", 32, 18, decode::q4_0),
    format("Q4_1", 32, 20, decode::q4_1),
    format("Q5_0", 32, 22, decode::q5_0),
    format("Q5_1", 32, 24, decode::q5_1),
    format("Q8_0", 32, 34, decode::q8_0),
    format("Q2_K", 256, 84, decode::q2_k),
    format("Q3_K", 256, 110, decode::q3_k),
    format("Q4_K", 256, 144, decode::q4_k),
    format("Q5_K", 256, 176, decode::q5_k),
    format("Q6_K", 256, 210, decode::q6_k),
    format("IQ4_NL", 32, 18, decode::iq4_nl),
    format("IQ4_XS", 256, 136, decode::iq4_xs),
    format("IQ2_XXS", 256, 66, decode::iq2_xxs),
    format("IQ2_XS", 256, 74, decode::iq2_xs),
    format("IQ2_S", 256, 82, decode::iq2_s),
    format("IQ3_XXS", 256, 98, decode::iq3_xxs),
    format("IQ3_S", 256, 110, decode::iq3_s),
    format("MXFP4", 32, 17, decode::mxfp4),
    format("NVFP4", 64, 36, decode::nvfp4),
    format("F8_E4M3", 1, 1, decode::f8_e4m3),
    format("F8_E5M2", 1, 1, decode::f8_e5m2),
    format("F8_E8M0", 1, 1, decode::f8_e8m0),
    format("F4", 2, 1, decode::f4_e2m1),
}};

const Format& format_of(DType dtype) {
  check(static_cast<size_t>(dtype) < kDTypeCount, "not a DType");
  return kFormats[static_cast<size_t>(dtype)];
}

}  // namespace

const DTypeInfo& dtype_info(DType dtype) { return format_of(dtype).info; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kDTypeCount; ++i) {
    if (kFormats[i].info.name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

size_t row_bytes(DType dtype, size_t elements) {
  const DTypeInfo& info = dtype_info(dtype);
  check(elements % info.block_elements == 0, "a row must be whole blocks");
  return elements / info.block_elements * info.block_bytes;
}

void decode_row(DType dtype, const std::byte* source, float* target, size_t elements) {
  const Format& format = format_of(dtype);
  check(format.decoder != nullptr, "the format has no decoder");
  check(elements % format.info.block_elements == 0, "a row must be whole blocks");
  format.decoder(reinterpret_cast<const uint8_t*>(source), target,
                 elements / format.info.block_elements);
}

}  // namespace deepinfer
