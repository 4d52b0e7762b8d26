#include "tensor/dtype.h"

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "tests/golden_file.h"

namespace deepinfer {
namespace {

const char* const kGgmlFormats[] = {
    "Q4_0",   "Q4_1",   "Q5_0",  "Q5_1",  "Q8_0",    "Q2_K",   "Q3_K",  "Q4_K",    "Q5_K", "Q6_K",
    "IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"};

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }

// Equal bits, or NaN in both.
void expect_same(std::span<const float> got, std::span<const float> want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    ASSERT_EQ(bits(got[i]), bits(want[i]))
        << what << "[" << i << "]: " << got[i] << " is not " << want[i];
  }
}

TEST(DTypeInfo, NamesAreUniqueAndFoundAgain) {
  for (size_t i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(dtype_info(dtype).name), dtype) << dtype_info(dtype).name;
  }
  EXPECT_EQ(dtype_from_name("Q9_9"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
  EXPECT_EQ(dtype_from_name("q4_0"), std::nullopt);
}

TEST(DTypeInfo, RowBytes) {
  EXPECT_EQ(row_bytes(DType::q4_0, 64), 36u);
  EXPECT_EQ(row_bytes(DType::q6_k, 512), 420u);
  EXPECT_EQ(row_bytes(DType::f4_e2m1, 6), 3u);
  EXPECT_EQ(row_bytes(DType::bf16, 0), 0u);
}

TEST(DTypeInfoDeathTest, BrokenBlocksAndMissingDecodersAreBugs) {
  EXPECT_DEATH(row_bytes(DType::q4_0, 33), "whole blocks");
  float value = 0;
  std::byte byte{};
  EXPECT_DEATH(decode_row(DType::i64, &byte, &value, 1), "no decoder");
  EXPECT_DEATH(encode_row(DType::q6_k, &value, &byte, 256), "no encoder");
}

TEST(DecodeRow, EveryGgmlFormatEqualsTheGoldensBitForBit) {
  const GoldenFile golden("quant/ggml.safetensors");
  for (const std::string name : kGgmlFormats) {
    const DType dtype = dtype_from_name(name).value();
    const GoldenTensor& raw = golden[name + ".raw"];
    const std::span<const float> want = golden[name + ".values"].as<float>();
    ASSERT_EQ(raw.shape.at(1), dtype_info(dtype).block_bytes) << name;
    ASSERT_EQ(want.size(), raw.shape[0] * dtype_info(dtype).block_elements) << name;
    // All blocks as one row, from an odd address as files have it.
    std::vector<std::byte> shifted(raw.size + 1);
    std::memcpy(shifted.data() + 1, raw.words.data(), raw.size);
    std::vector<float> got(want.size());
    decode_row(dtype, shifted.data() + 1, got.data(), got.size());
    expect_same(got, want, name);
  }
}

TEST(DecodeRow, WritesNothingBeyondTheRow) {
  const GoldenFile golden("quant/ggml.safetensors");
  for (const std::string name : kGgmlFormats) {
    const DType dtype = dtype_from_name(name).value();
    const size_t elements = dtype_info(dtype).block_elements;
    std::vector<float> got(elements + 1, -77.0f);
    decode_row(dtype, golden[name + ".raw"].as<std::byte>().data(), got.data(), elements);
    EXPECT_EQ(got[elements], -77.0f) << name;
  }
}

TEST(DecodeRow, HalvesEqualTheGoldens) {
  const GoldenFile golden("quant/ggml.safetensors");
  for (const std::string name : {"F16", "BF16"}) {
    const std::span<const uint16_t> codes = golden[name + ".codes"].as<uint16_t>();
    const std::span<const float> want = golden[name + ".values"].as<float>();
    std::vector<float> got(codes.size());
    decode_row(dtype_from_name(name).value(), std::as_bytes(codes).data(), got.data(), got.size());
    expect_same(got, want, name);
    for (size_t i = 0; i < codes.size(); ++i) {
      got[i] = name == "F16" ? f16_to_f32(codes[i]) : bf16_to_f32(codes[i]);
    }
    expect_same(got, want, name);
  }
}

TEST(DecodeRow, SmallFloatsEqualTheGoldens) {
  const GoldenFile golden("quant/floats.safetensors");
  std::vector<uint8_t> codes(256);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  std::vector<float> got(256);
  const std::pair<DType, const char*> formats[] = {{DType::f8_e4m3, "e4m3fn.values"},
                                                   {DType::f8_e5m2, "e5m2.values"},
                                                   {DType::f8_e8m0, "ue8m0.values"}};
  for (const auto& [dtype, name] : formats) {
    decode_row(dtype, std::as_bytes(std::span(codes)).data(), got.data(), got.size());
    expect_same(got, golden[name].as<float>(), name);
  }
  // 0x10, 0x32, ...: nibbles 0, 1, 2, ... in order.
  for (unsigned i = 0; i < 8; ++i) codes[i] = static_cast<uint8_t>((2 * i + 1) << 4 | 2 * i);
  decode_row(DType::f4_e2m1, std::as_bytes(std::span(codes)).data(), got.data(), 16);
  expect_same(std::span(got).first(16), golden["e2m1.values"].as<float>(), "e2m1");
}

TEST(DecodeRow, PlainIntegers) {
  const uint8_t codes[] = {0, 1, 127, 128, 255};
  float got[5];
  decode_row(DType::u8, reinterpret_cast<const std::byte*>(codes), got, 5);
  EXPECT_EQ(got[3], 128.0f);
  decode_row(DType::i8, reinterpret_cast<const std::byte*>(codes), got, 5);
  EXPECT_EQ(got[3], -128.0f);
  EXPECT_EQ(got[4], -1.0f);
}

template <class Code, class Encode>
void expect_rounds(const GoldenFile& golden, const std::string& name, Encode encode) {
  const std::span<const float> input = golden[name + ".input"].as<float>();
  const std::span<const Code> want = golden[name + ".codes"].as<Code>();
  ASSERT_EQ(input.size(), want.size());
  ASSERT_GT(input.size(), 0u);
  for (size_t i = 0; i < input.size(); ++i) {
    ASSERT_EQ(+encode(input[i]), +want[i]) << name << "[" << i << "] of " << input[i];
  }
}

TEST(Rounding, NearestEvenEqualsTheGoldens) {
  const GoldenFile golden("quant/floats.safetensors");
  expect_rounds<uint16_t>(golden, "bf16_rne", f32_to_bf16);
  expect_rounds<uint16_t>(golden, "f16_rne", f32_to_f16);
  expect_rounds<uint8_t>(golden, "e4m3fn_rne", f32_to_e4m3);
  expect_rounds<uint8_t>(golden, "e5m2_rne", f32_to_e5m2);
}

TEST(Rounding, UnitsOfV41) {
  const GoldenFile golden("deepseek_v41/units.safetensors");
  const std::span<const float> in = golden["bf16_in"].as<float>();
  const std::span<const float> out = golden["bf16_out"].as<float>();
  ASSERT_EQ(in.size(), 256u);
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(bf16_to_f32(f32_to_bf16(in[i])), out[i]) << in[i];
  }
  const std::span<const float> table = golden["e4m3_table"].as<float>();
  ASSERT_EQ(table.size(), 256u);
  for (size_t code = 0; code < table.size(); ++code) {
    const float value = e4m3_to_f32(static_cast<uint8_t>(code));
    EXPECT_EQ(std::isnan(value) ? 0.0f : value, table[code]) << code;
  }
}

TEST(Rounding, FlushToZeroChangesNothing) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8000);
  const GoldenFile golden("quant/floats.safetensors");
  expect_rounds<uint16_t>(golden, "f16_rne", f32_to_f16);
  expect_rounds<uint8_t>(golden, "e4m3fn_rne", f32_to_e4m3);
  expect_rounds<uint8_t>(golden, "e5m2_rne", f32_to_e5m2);
  _mm_setcsr(before);
}

TEST(Rounding, EveryCodeComesBack) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const uint16_t half = static_cast<uint16_t>(code);
    if (!std::isnan(f16_to_f32(half))) ASSERT_EQ(f32_to_f16(f16_to_f32(half)), half);
    if (!std::isnan(bf16_to_f32(half))) ASSERT_EQ(f32_to_bf16(bf16_to_f32(half)), half);
  }
  for (uint32_t code = 0; code < 256; ++code) {
    const uint8_t byte = static_cast<uint8_t>(code);
    if (!std::isnan(e4m3_to_f32(byte))) ASSERT_EQ(f32_to_e4m3(e4m3_to_f32(byte)), byte);
    if (!std::isnan(e5m2_to_f32(byte))) ASSERT_EQ(f32_to_e5m2(e5m2_to_f32(byte)), byte);
  }
}

TEST(Rounding, NanStaysNanAndLargeValuesSaturate) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  // Only a low payload bit: truncation alone would make an infinity of it.
  const float low_nan = std::bit_cast<float>(0x7f800001u);
  for (float value : {nan, -nan, low_nan}) {
    EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(value))));
    EXPECT_TRUE(std::isnan(e4m3_to_f32(f32_to_e4m3(value))));
    EXPECT_TRUE(std::isnan(e5m2_to_f32(f32_to_e5m2(value))));
  }
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(e4m3_to_f32(f32_to_e4m3(1e30f)), 448.0f);
  EXPECT_EQ(e4m3_to_f32(f32_to_e4m3(-465.0f)), -448.0f);
  EXPECT_TRUE(std::isnan(e4m3_to_f32(f32_to_e4m3(inf))));
  EXPECT_EQ(e5m2_to_f32(f32_to_e5m2(-1e30f)), -57344.0f);
  EXPECT_EQ(e5m2_to_f32(f32_to_e5m2(inf)), inf);
  EXPECT_EQ(f16_to_f32(f32_to_f16(65519.0f)), 65504.0f);
  EXPECT_EQ(f16_to_f32(f32_to_f16(65520.0f)), inf);
  EXPECT_EQ(f16_to_f32(f32_to_f16(-inf)), -inf);
  EXPECT_TRUE(std::isnan(ue8m0_to_f32(255)));
}

TEST(EncodeRow, EqualsThePackageQuantisers) {
  const GoldenFile golden("quant/ggml.safetensors");
  const std::span<const float> input = golden["quantize.input"].as<float>();
  for (const std::string name : {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16", "MXFP4"}) {
    const DType dtype = dtype_from_name(name).value();
    ASSERT_TRUE(can_encode(dtype));
    const std::span<const uint8_t> want = golden["quantize." + name + ".raw"].as<uint8_t>();
    std::vector<uint8_t> got(row_bytes(dtype, input.size()));
    ASSERT_EQ(got.size(), want.size()) << name;
    encode_row(dtype, input.data(), reinterpret_cast<std::byte*>(got.data()), input.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(+got[i], +want[i]) << name << " byte " << i;
  }
}

TEST(EncodeRow, HalvesOfQ8RoundAwayFromZero) {
  std::vector<float> values(32, 0.0f);
  const float some[] = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -2.5f, 2.4f};
  std::copy(std::begin(some), std::end(some), values.begin());
  std::byte block[34];
  encode_row(DType::q8_0, values.data(), block, values.size());
  std::vector<float> decoded(32);
  decode_row(DType::q8_0, block, decoded.data(), decoded.size());
  decoded.resize(7);
  EXPECT_EQ(decoded, (std::vector<float>{127, 1, 2, 3, -1, -3, 2}));
}

TEST(EncodeRow, ZerosAndValuesThatAreNotFiniteAreNoFault) {
  std::vector<float> values(32, 0.0f);
  std::vector<float> decoded(32);
  std::byte block[128];
  for (DType dtype : {DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0, DType::mxfp4,
                      DType::f32, DType::f16, DType::bf16}) {
    encode_row(dtype, values.data(), block, values.size());
    decode_row(dtype, block, decoded.data(), decoded.size());
    for (float value : decoded) EXPECT_EQ(value, 0.0f) << dtype_info(dtype).name;
    std::vector<float> broken(32, std::numeric_limits<float>::quiet_NaN());
    broken[3] = std::numeric_limits<float>::infinity();
    broken[4] = 1e-44f;
    encode_row(dtype, broken.data(), block, broken.size());
  }
  EXPECT_FALSE(can_encode(DType::q6_k));
  EXPECT_FALSE(can_encode(DType::i32));
}

}  // namespace
}  // namespace deepinfer
