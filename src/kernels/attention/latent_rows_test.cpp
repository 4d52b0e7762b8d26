#include "kernels/attention/latent_rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/dtype.h"
#include "tests/golden_file.h"

namespace deepinfer::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<Isa> all_isas() {
  std::vector<Isa> out = {Isa::ref};
  if (cpu_features().avx2) out.insert(out.end(), {Isa::avx2, Isa::emulated512});
  if (cpu_features().avx512_vnni) out.push_back(Isa::avx512);
  return out;
}

LatentFormat format_of(LatentCode code, size_t width, size_t rope = 0) {
  return {.code = code, .width = static_cast<uint32_t>(width), .rope = static_cast<uint32_t>(rope)};
}

// Every format at odd and at real widths.
std::vector<LatentFormat> formats() {
  std::vector<LatentFormat> out;
  for (size_t width : {2, 8, 24, 30, 512, 576}) {
    out.push_back(format_of(LatentCode::f32, width));
    out.push_back(format_of(LatentCode::bf16, width));
  }
  for (size_t width : {32, 64, 96, 512, 576}) {
    out.push_back(format_of(LatentCode::q8, width));
    out.push_back(format_of(LatentCode::q4u, width));
  }
  for (size_t width : {16, 48, 64, 128, 512}) out.push_back(format_of(LatentCode::q4e, width));
  const size_t parts[][2] = {{512, 64}, {64, 32}, {8, 2}, {64, 0}, {150, 6}, {24, 8}, {96, 96}};
  for (const auto& [width, rope] : parts) {
    out.push_back(format_of(LatentCode::v4, width, rope));
  }
  return out;
}

std::string name(const LatentFormat& f) {
  const char* names[] = {"f32", "bf16", "q8", "q4e", "q4u", "v4"};
  return std::string(names[static_cast<size_t>(f.code)]) + " width " + std::to_string(f.width) +
         " rope " + std::to_string(f.rope);
}

// Values of all magnitudes: per row one of ordinary, tiny, huge, mixed, on the edges of codes.
std::vector<float> test_row(size_t width, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> small(-40, 40);
  std::vector<float> out(width);
  for (float& x : out) {
    x = normal(random);
    if (seed % 6 == 1) x *= 1e-6f;
    if (seed % 6 == 2) x *= 1e30f;
    if (seed % 6 == 3) x = std::ldexp(x, small(random));
    if (seed % 6 == 4) x = static_cast<float>(small(random)) * (seed % 4 == 0 ? 0.25f : 0x101p-10f);
    if (seed % 6 == 5) x = small(random) > 20 ? normal(random) : small(random) > 0 ? 0.0f : -0.0f;
  }
  return out;
}

template <class T>
bool same_bytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

std::vector<std::byte> encoded(Isa isa, const LatentFormat& format, const std::vector<float>& x) {
  std::vector<std::byte> row(format.row_bytes());
  latent_row_ops(isa).encode(format, x.data(), row.data());
  return row;
}
std::vector<float> decoded(Isa isa, const LatentFormat& format, const std::vector<std::byte>& row) {
  std::vector<float> x(format.width);
  latent_row_ops(isa).decode(format, row.data(), x.data());
  return x;
}
std::vector<float> rounded(Isa isa, const LatentFormat& format, std::vector<float> x) {
  latent_row_ops(isa).round(format, x.data());
  return x;
}

TEST(LatentRows, BytesOfRealRows) {
  EXPECT_EQ(format_of(LatentCode::v4, 512, 64).row_bytes(), 584u);
  EXPECT_EQ(format_of(LatentCode::q4u, 128).row_bytes(), 68u);
  EXPECT_EQ(format_of(LatentCode::q8, 512).row_bytes(), 528u);
  EXPECT_EQ(format_of(LatentCode::q4e, 512).row_bytes(), 288u);
  EXPECT_EQ(format_of(LatentCode::bf16, 576).row_bytes(), 1152u);
  EXPECT_EQ(format_of(LatentCode::v4, 64, 32).row_bytes(), 32u + 8u + 64u);
}

// What the reference of V4.1 computes from the same values, bit for bit.
TEST(LatentRows, EqualsUnitsOfV41) {
  const GoldenFile golden("deepseek_v41/units.safetensors");
  const std::span<const float> x = golden["x"].as<float>();  // [32, 64]
  ASSERT_EQ(x.size(), 32u * 64u);
  const std::pair<LatentCode, const char*> cases[] = {{LatentCode::q8, "fp8_ue8m0_block32"},
                                                      {LatentCode::q4e, "fp4_e4m3_block16"},
                                                      {LatentCode::q4u, "fp4_ue8m0_block32"}};
  for (const auto& [code, tensor] : cases) {
    const std::span<const float> expected = golden[tensor].as<float>();
    const LatentFormat format = format_of(code, 64);
    for (Isa isa : all_isas()) {
      for (size_t row = 0; row < 32; ++row) {
        const std::vector<float> in(x.begin() + row * 64, x.begin() + row * 64 + 64);
        const std::vector<float> want(expected.begin() + row * 64,
                                      expected.begin() + row * 64 + 64);
        EXPECT_TRUE(same_bytes(rounded(isa, format, in), want))
            << tensor << " row " << row << " " << isa_name(isa);
        EXPECT_TRUE(same_bytes(decoded(isa, format, encoded(isa, format, in)), want))
            << tensor << " row " << row << " " << isa_name(isa);
      }
    }
  }
  // Midpoints between codes, which the units hold few of.
  const GoldenFile codes("quant/floats.safetensors");
  const std::span<const float> midpoints = codes["bf16_rne.input"].as<float>();
  const std::span<const uint16_t> nearest = codes["bf16_rne.codes"].as<uint16_t>();
  for (Isa isa : all_isas()) {
    std::vector<float> values(midpoints.begin(), midpoints.end());
    latent_row_ops(isa).round_bf16(values.data(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(f32_to_bf16(values[i]), nearest[i]) << i << " " << isa_name(isa);
    }
  }
  const std::span<const float> in = golden["bf16_in"].as<float>();
  const std::span<const float> want = golden["bf16_out"].as<float>();
  for (Isa isa : all_isas()) {
    std::vector<float> values(in.begin(), in.end());
    latent_row_ops(isa).round_bf16(values.data(), values.size());
    EXPECT_EQ(std::memcmp(values.data(), want.data(), want.size_bytes()), 0) << isa_name(isa);
  }
}

// The activation quantisers of V4: values, codes and exponents.
TEST(LatentRows, EqualsActivationQuantisersOfV4) {
  const GoldenFile golden("quant/floats.safetensors");
  const std::span<const float> x = golden["act.input"].as<float>();  // [12, 128]
  ASSERT_EQ(x.size(), 12u * 128u);
  for (Isa isa : all_isas()) {
    for (size_t block : {64, 128}) {
      const std::string what = "act_fp8_b" + std::to_string(block);
      const std::span<const float> values = golden[what + ".values"].as<float>();
      std::vector<float> got(x.begin(), x.end());
      for (size_t row = 0; row < 12; ++row) {
        latent_row_ops(isa).round_q8(&got[row * 128], 128, block);
      }
      EXPECT_EQ(std::memcmp(got.data(), values.data(), values.size_bytes()), 0)
          << what << " " << isa_name(isa);
    }
    for (const auto& [code, what] :
         {std::pair{LatentCode::v4, "act_fp8_b64"}, std::pair{LatentCode::q4u, "act_fp4_b32"}}) {
      const size_t block = code == LatentCode::v4 ? 64 : 32;
      const std::span<const uint8_t> codes = golden[std::string(what) + ".codes"].as<uint8_t>();
      const std::span<const int32_t> exponents =
          golden[std::string(what) + ".exponent"].as<int32_t>();
      const std::span<const float> values = golden[std::string(what) + ".values"].as<float>();
      const LatentFormat format = format_of(code, 128);
      for (size_t r = 0; r < 12; ++r) {
        const std::vector<float> in(x.begin() + r * 128, x.begin() + r * 128 + 128);
        const std::vector<std::byte> row = encoded(isa, format, in);
        const std::vector<float> back = decoded(isa, format, row);
        const size_t code_bytes = code == LatentCode::v4 ? 128 : 64;
        for (size_t i = 0; i < 128; ++i) {
          const auto at = std::to_integer<unsigned>(row[code == LatentCode::v4 ? i : i / 2]);
          const unsigned stored = code == LatentCode::v4 ? at : i % 2 == 0 ? at & 15 : at >> 4;
          EXPECT_EQ(stored, codes[r * 128 + i]) << what << " row " << r << " " << isa_name(isa);
          EXPECT_EQ(std::bit_cast<uint32_t>(back[i]), std::bit_cast<uint32_t>(values[r * 128 + i]));
        }
        for (size_t b = 0; b < 128 / block; ++b) {
          EXPECT_EQ(std::to_integer<int>(row[code_bytes + b]) - 127,
                    exponents[r * (128 / block) + b]);
        }
      }
    }
  }
}

// Rows, their values and the rounding: the same bits everywhere, and nothing beside them written.
TEST(LatentRows, EveryInstructionSetGivesTheBitsOfReference) {
  for (const LatentFormat& format : formats()) {
    for (unsigned seed = 0; seed < 24; ++seed) {
      const std::vector<float> x = test_row(format.width, seed);
      const std::vector<std::byte> row = encoded(Isa::ref, format, x);
      const std::vector<float> values = decoded(Isa::ref, format, row);
      for (Isa isa : all_isas()) {
        std::vector<std::byte> own(row.size() + 16, std::byte{0xA5});
        latent_row_ops(isa).encode(format, x.data(), own.data());
        EXPECT_EQ(std::memcmp(own.data(), row.data(), row.size()), 0)
            << name(format) << " seed " << seed << " " << isa_name(isa);
        for (size_t i = row.size(); i < own.size(); ++i) EXPECT_EQ(own[i], std::byte{0xA5});
        std::vector<float> back(x.size() + 16, -7.0f);
        latent_row_ops(isa).decode(format, row.data(), back.data());
        EXPECT_EQ(std::memcmp(back.data(), values.data(), values.size() * 4), 0)
            << name(format) << " seed " << seed << " " << isa_name(isa);
        for (size_t i = x.size(); i < back.size(); ++i) EXPECT_EQ(back[i], -7.0f);
        EXPECT_TRUE(same_bytes(rounded(isa, format, x), values))
            << name(format) << " seed " << seed << " " << isa_name(isa);
      }
    }
  }
}

// The same on a worker of a pool, where results that would be denormal flush to zero.
TEST(LatentRows, FlushToZeroChangesNoInstructionSetAlone) {
  const auto pool = ThreadPool::create({.threads = 1}).value();
  pool->run(1, [](size_t, size_t) {
    for (const LatentFormat& format : formats()) {
      std::vector<float> x = test_row(format.width, 0);
      for (size_t i = 0; i < x.size(); ++i) x[i] *= i % 64 < 32 ? 0x1p-128f : 0x1p-120f;
      const std::vector<std::byte> row = encoded(Isa::ref, format, x);
      const std::vector<float> values = decoded(Isa::ref, format, row);
      for (Isa isa : all_isas()) {
        EXPECT_TRUE(same_bytes(encoded(isa, format, x), row)) << name(format) << isa_name(isa);
        EXPECT_TRUE(same_bytes(decoded(isa, format, row), values)) << name(format) << isa_name(isa);
        EXPECT_TRUE(same_bytes(rounded(isa, format, x), values)) << name(format) << isa_name(isa);
      }
    }
  });
}

// A quantised value is at most half a step of its block away.
TEST(LatentRows, ErrorIsWithinHalfAStep) {
  const std::vector<float> x = test_row(512, 6);
  const std::pair<LatentCode, float> cases[] = {{LatentCode::q8, 1.0f / 16},
                                                {LatentCode::v4, 1.0f / 16},
                                                {LatentCode::q4u, 1.0f / 3},
                                                {LatentCode::q4e, 1.0f / 5}};
  for (const auto& [code, share] : cases) {
    const std::vector<float> got = rounded(Isa::ref, format_of(code, 512, 0), x);
    for (size_t i = 0; i < 512; ++i) {
      float amax = 0.0f;
      const size_t block = code == LatentCode::q4e ? 16 : code == LatentCode::v4 ? 64 : 32;
      for (size_t j = i / block * block; j < i / block * block + block; ++j) {
        amax = std::max(amax, std::abs(x[j]));
      }
      EXPECT_LE(std::abs(got[i] - x[i]), share * amax) << static_cast<int>(code) << " " << i;
    }
  }
}

// A second rounding changes nothing (q4e: of blocks with amax from 6 * 2^-6 on).
TEST(LatentRows, SecondRoundingChangesNothing) {
  for (const LatentFormat& format : formats()) {
    for (unsigned seed : {0u, 2u, 4u, 6u}) {
      const std::vector<float> once = rounded(Isa::ref, format, test_row(format.width, seed));
      EXPECT_TRUE(same_bytes(rounded(Isa::ref, format, once), once)) << name(format) << seed;
    }
  }
}

TEST(LatentRows, RoundsBlocksOfAnyLength) {
  for (size_t n : {1, 7, 8, 31, 32, 33, 127, 128, 200, 256, 300}) {
    for (size_t block : {5, 24, 32, 64, 128}) {
      for (unsigned seed = 0; seed < 6; ++seed) {
        const std::vector<float> x = test_row(n, seed);
        std::vector<float> want = x;
        latent_row_ops(Isa::ref).round_q8(want.data(), n, block);
        for (Isa isa : all_isas()) {
          std::vector<float> got = x;
          got.resize(n + 16, -7.0f);
          latent_row_ops(isa).round_q8(got.data(), n, block);
          EXPECT_EQ(std::memcmp(got.data(), want.data(), n * sizeof(float)), 0)
              << n << " by " << block << " " << isa_name(isa);
          for (size_t i = n; i < n + 16; ++i) EXPECT_EQ(got[i], -7.0f);
        }
      }
    }
  }
}

// All codes and scales of rows that encode() writes, and the codes it does not write but zero.
TEST(LatentRows, DecodesEveryCode) {
  for (LatentCode code : {LatentCode::q8, LatentCode::q4e, LatentCode::q4u, LatentCode::v4}) {
    const LatentFormat format = format_of(code, 512);
    const bool bytes = code == LatentCode::q8 || code == LatentCode::v4;
    for (unsigned scale = 1; scale < 254; ++scale) {
      if (code == LatentCode::q4e && scale >= 0x7F) break;
      if (bytes && scale > 246) break;
      std::vector<std::byte> row(format.row_bytes(), std::byte{static_cast<uint8_t>(scale)});
      for (size_t i = 0; i < (bytes ? 512 : 256); ++i) {
        row[i] = std::byte{static_cast<uint8_t>(bytes && i % 128 == 127 ? 0 : i)};
      }
      const std::vector<float> want = decoded(Isa::ref, format, row);
      for (Isa isa : all_isas()) {
        EXPECT_TRUE(same_bytes(decoded(isa, format, row), want))
            << name(format) << " scale " << scale << " " << isa_name(isa);
      }
    }
  }
}

// One NaN or infinity makes its block NaN, its neighbours stay.
TEST(LatentRows, NotANumberSpoilsItsBlockOnly) {
  const std::pair<LatentCode, size_t> cases[] = {
      {LatentCode::q8, 32}, {LatentCode::v4, 64}, {LatentCode::q4e, 16}, {LatentCode::q4u, 32}};
  for (float bad : {kNaN, -kNaN, kInfinity, -kInfinity, 3.0e38f}) {
    for (const auto& [code, block] : cases) {
      if (bad == 3.0e38f && code != LatentCode::q8 && code != LatentCode::v4) continue;
      const LatentFormat format = format_of(code, 128);
      std::vector<float> x = test_row(128, 0);
      const std::vector<float> clean = rounded(Isa::ref, format, x);
      x[block + 3] = bad;
      const std::vector<std::byte> row = encoded(Isa::ref, format, x);
      for (Isa isa : all_isas()) {
        EXPECT_TRUE(same_bytes(encoded(isa, format, x), row)) << name(format) << isa_name(isa);
        for (const auto& got : {rounded(isa, format, x), decoded(isa, format, row)}) {
          for (size_t i = 0; i < 128; ++i) {
            if (i / block == 1) {
              EXPECT_TRUE(std::isnan(got[i])) << name(format) << i << isa_name(isa);
            } else {
              EXPECT_EQ(got[i], clean[i]) << name(format) << i << isa_name(isa);
            }
          }
        }
      }
    }
  }
}

TEST(LatentRows, RoundsToBf16LikeItsDefinition) {
  for (size_t n : {1, 15, 16, 64, 77}) {
    for (unsigned seed = 0; seed < 6; ++seed) {
      std::vector<float> x = test_row(n, seed);
      x[n / 2] = seed == 1 ? kNaN : seed == 2 ? -kInfinity : 3.4e38f;
      std::vector<float> want = x;
      for (float& v : want) v = bf16_to_f32(f32_to_bf16(v));
      for (Isa isa : all_isas()) {
        std::vector<float> got = x;
        latent_row_ops(isa).round_bf16(got.data(), n);
        EXPECT_TRUE(same_bytes(got, want)) << n << " " << isa_name(isa);
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::kernels
