// Goal: matrices of FP8 and FP4 codes with tiles of scales give the reference's products bit for
// bit on every instruction set, on shapes that neither tiles nor panels divide; segments are
// products of their own rows. Method: random codes of all finite values, each kind of scales.
#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/matmul/matmul_fixture.h"

namespace deepinfer::kernels {
namespace {

struct Kind {
  const char* name;
  DType codes;
  DType scales;
  uint32_t tile_outputs, tile_inputs;
  bool scaled = true;
};
constexpr Kind kKinds[] = {
    {"FP8 32x32 UE8M0", DType::f8_e4m3, DType::f8_e8m0, 32, 32},
    {"FP8 128x128 UE8M0", DType::f8_e4m3, DType::f8_e8m0, 128, 128},
    {"FP8 128x128 F32", DType::f8_e4m3, DType::f32, 128, 128},
    {"FP8 without scales", DType::f8_e4m3, DType::f32, 0, 0, false},
    {"FP4 1x32 UE8M0", DType::f4_e2m1, DType::f8_e8m0, 1, 32},
};

struct Matrix {
  std::vector<std::byte> codes, scales;
  ScaledView view;
};

Matrix random_matrix(const Kind& kind, size_t outputs, size_t inputs, unsigned seed) {
  std::mt19937 rng(seed);
  Matrix m;
  m.codes.resize(outputs * row_bytes(kind.codes, inputs));
  for (std::byte& code : m.codes) {
    do {
      code = static_cast<std::byte>(rng());
    } while (kind.codes == DType::f8_e4m3 && (code & std::byte{0x7f}) == std::byte{0x7f});
  }
  m.view.codes = {kind.codes, {outputs, inputs}, m.codes.data()};
  if (!kind.scaled) return m;
  const size_t rows = (outputs + kind.tile_outputs - 1) / kind.tile_outputs;
  const size_t columns = (inputs + kind.tile_inputs - 1) / kind.tile_inputs;
  m.scales.resize(row_bytes(kind.scales, rows * columns));
  std::uniform_real_distribution<float> uniform(1e-5f, 1e-3f);
  for (size_t i = 0; i < rows * columns; ++i) {
    const float scale = uniform(rng);
    if (kind.scales == DType::f32) std::memcpy(m.scales.data() + i * 4, &scale, 4);
    if (kind.scales == DType::f8_e8m0) m.scales[i] = static_cast<std::byte>(108 + rng() % 12);
  }
  m.view.scales = {kind.scales, {rows, columns}, m.scales.data()};
  m.view.tile_outputs = kind.tile_outputs;
  m.view.tile_inputs = kind.tile_inputs;
  return m;
}

std::vector<float> product(ThreadPool& pool, const PackedMatrix& m, const std::vector<float>& x,
                           size_t rows, Target target) {
  Activations acts;
  acts.begin(target, rows, m.inputs(), m.form());
  for (size_t r = 0; r < rows; ++r) acts.fill_row(r, x.data() + r * m.inputs());
  std::vector<float> out(rows * m.outputs(), -1.0f);
  matmul(pool, acts, {{.weights = &m, .out = out.data(), .stride = m.outputs()}});
  return out;
}

std::vector<float> product(ThreadPool& pool, const ScaledView& view, const std::vector<float>& x,
                           size_t rows, Target target) {
  return product(pool, PackedMatrix::pack(view, target, pool).value(), x, rows, target);
}

std::string label(const Kind& kind, Isa isa, size_t rows) {
  return std::string(kind.name) + " " + std::string(isa_name(isa)) + " rows " +
         std::to_string(rows);
}

TEST(MatmulScaled, EveryKernelEqualsTheReferenceBitForBit) {
  auto pool = pool_of(1);
  for (const Kind& kind : kKinds) {
    const bool fp4 = kind.codes == DType::f4_e2m1;
    for (const auto& [outputs, inputs] : {std::pair<size_t, size_t>{1, 32},
                                          {31, 224},
                                          {33, 160},
                                          {97, 1056},
                                          {130, 288},
                                          {1, fp4 ? 32 : 1},
                                          {77, fp4 ? 96 : 77},
                                          {140, fp4 ? 320 : 333}}) {
      const Matrix w = random_matrix(kind, outputs, inputs, 1);
      for (size_t rows : {1, 2, 3, 5, 9, 21}) {
        const std::vector<float> x = random_rows(rows, inputs, 2);
        for (Numerics numerics : {Numerics::exact, Numerics::fast}) {
          const auto expected = product(*pool, w.view, x, rows, {Isa::ref, numerics});
          for (Isa isa : vector_isas()) {
            expect_same_bits(product(*pool, w.view, x, rows, {isa, numerics}), expected,
                             label(kind, isa, rows) + " " + std::to_string(inputs));
          }
        }
      }
    }
  }
}

TEST(MatmulScaled, ExactEqualsDoubleWithinRounding) {
  auto pool = pool_of(2);
  for (const Kind& kind : kKinds) {
    const Matrix w = random_matrix(kind, 70, 416, 3);
    const std::vector<float> x = random_rows(2, 416, 4);
    std::vector<float> row(416);
    for (Isa isa : vector_isas()) {
      const auto out = product(*pool, w.view, x, 2, {isa, Numerics::exact});
      for (size_t n = 0; n < 70; ++n) {
        deepinfer::decode_row(w.view, n, row.data());
        for (size_t m = 0; m < 2; ++m) {
          double sum = 0, terms = 0;
          for (size_t k = 0; k < row.size(); ++k) {
            sum += double{row[k]} * x[m * row.size() + k];
            terms += std::abs(double{row[k]} * x[m * row.size() + k]);
          }
          ASSERT_NEAR(out[m * 70 + n], sum, 1e-5 * terms) << label(kind, isa, 2);
        }
      }
    }
  }
}

TEST(MatmulScaled, ARowHasTheSameBitsAloneAndAmongAnyOthers) {
  auto one = pool_of(1);
  auto three = pool_of(3);
  constexpr size_t kRows = 61, kInputs = 352, kOutputs = 150;
  for (const Kind& kind : kKinds) {
    const Matrix w = random_matrix(kind, kOutputs, kInputs, 5);
    const std::vector<float> x = random_rows(kRows, kInputs, 6);
    for (Isa isa : vector_isas()) {
      const Target target{isa, Numerics::fast};
      const PackedMatrix m = PackedMatrix::pack(w.view, target, *one).value();
      const auto all = product(*three, m, x, kRows, target);
      for (size_t rows : {1, 2, 3, 4, 5, 6, 7, 12, 13, 19}) {
        const auto first = static_cast<long>(rows * 5 % (kRows - rows));
        const auto count = static_cast<long>(rows);
        const std::vector<float> some(x.begin() + first * kInputs,
                                      x.begin() + (first + count) * kInputs);
        const std::vector<float> expected(all.begin() + first * kOutputs,
                                          all.begin() + (first + count) * kOutputs);
        expect_same_bits(product(*one, m, some, rows, target), expected, label(kind, isa, rows));
      }
    }
  }
}

TEST(MatmulScaled, DecodeRowGivesTheStoredValues) {
  auto pool = pool_of(1);
  for (const Kind& kind : kKinds) {
    const Matrix w = random_matrix(kind, 70, 352, 7);
    std::vector<float> expected(352), row(352);
    for (Isa isa : {Isa::ref, Isa::avx2, Isa::emulated512}) {
      const PackedMatrix m = PackedMatrix::pack(w.view, {isa, Numerics::exact}, *pool).value();
      for (size_t n : {0, 1, 15, 16, 31, 32, 63, 64, 69}) {
        deepinfer::decode_row(w.view, n, expected.data());
        m.decode_row(n, row.data());
        // MXFP4 panels have no -0.
        if (kind.codes == DType::f4_e2m1) {
          for (float& value : expected) value += 0.0f;
        }
        expect_same_bits(row, expected, label(kind, isa, n));
      }
    }
  }
}

TEST(MatmulScaled, ScalesThatAreNoNormalPowersOfTwoAreMultipliedOnce) {
  auto pool = pool_of(1);
  for (const float scale : {0.0f, 0x1p-126f, 0x1.8p-20f, 1.0f, 0x1.fffffep9f}) {
    Matrix w = random_matrix(kKinds[2], 64, 128, 8);
    std::memcpy(w.scales.data(), &scale, 4);
    const std::vector<float> x = random_rows(2, 128, 9);
    const auto expected = product(*pool, w.view, x, 2, {Isa::ref, Numerics::fast});
    for (Isa isa : vector_isas()) {
      const auto out = product(*pool, w.view, x, 2, {isa, Numerics::fast});
      if (scale != 0x1p-126f) {
        expect_same_bits(out, expected, std::to_string(scale));
      } else {  // products at the end of the range: zero or next to it
        for (const float value : out) EXPECT_LT(std::abs(value), 1e-30f);
      }
    }
  }
}

TEST(MatmulScaled, NotANumberReachesTheOutputs) {
  auto pool = pool_of(1);
  for (Isa isa : vector_isas()) {
    for (size_t rows : {1, 20}) {
      const std::vector<float> x = random_rows(rows, 128, 10);
      Matrix code = random_matrix(kKinds[0], 70, 128, 11);
      code.codes[65 * 128 + 99] = std::byte{0xff};
      Matrix scale = random_matrix(kKinds[1], 70, 128, 12);
      scale.scales[0] = std::byte{255};
      const auto by_code = product(*pool, code.view, x, rows, {isa, Numerics::fast});
      const auto by_scale = product(*pool, scale.view, x, rows, {isa, Numerics::fast});
      for (size_t r = 0; r < rows; ++r) {
        EXPECT_TRUE(std::isnan(by_code[r * 70 + 65])) << isa_name(isa);
        EXPECT_TRUE(std::isfinite(by_code[r * 70 + 63])) << isa_name(isa);
        EXPECT_TRUE(std::isnan(by_scale[r * 70])) << isa_name(isa);
      }
    }
  }
}

TEST(MatmulScaled, PackedIntoACallersMemoryAndPanelsInPlaceAreTheSameMatrix) {
  auto pool = pool_of(1);
  for (const Kind& kind : kKinds) {
    const Matrix w = random_matrix(kind, 75, 224, 13);
    const std::vector<float> x = random_rows(3, 224, 14);
    for (Isa isa : vector_isas()) {
      const Target target{isa, Numerics::fast};
      const auto expected = product(*pool, w.view, x, 3, target);
      const size_t bytes = PackedMatrix::packed_bytes(w.view, target).value();
      Buffer buffer(bytes + Arena::kSlackBytes);
      std::memset(buffer.data(), 0x55, buffer.size());
      const PackedMatrix m =
          PackedMatrix::pack_into(w.view, target, {buffer.data(), bytes}).value();
      EXPECT_EQ(m.bytes(), bytes);
      EXPECT_EQ(buffer.data()[bytes], std::byte{0x55});
      expect_same_bits(product(*pool, m, x, 3, target), expected, label(kind, isa, 3));
      const ScaledView panels{{kind.codes, {75, 224}, buffer.data(), panel_layout(isa)}, {}, 0, 0};
      expect_same_bits(product(*pool, panels, x, 3, target), expected, label(kind, isa, 3));
    }
  }
}

TEST(MatmulScaled, PanelsOfOtherKernelsAreRefusedByName) {
  auto pool = pool_of(1);
  Buffer buffer(65536);
  const ScaledView panels{
      {DType::f8_e4m3, {64, 64}, buffer.data(), PanelLayout::wide512}, {}, 0, 0};
  const auto result = PackedMatrix::pack(panels, {Isa::avx2, Numerics::fast}, *pool);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().text(), "packed matrix 64x64: was packed for wide512, avx2 reads avx2");
  ScaledView shifted = panels;
  shifted.codes.data += 32;
  const auto unaligned = PackedMatrix::pack(shifted, {Isa::emulated512, Numerics::fast}, *pool);
  ASSERT_FALSE(unaligned.ok());
  EXPECT_EQ(unaligned.error().text(),
            "packed matrix 64x64: does not start at a multiple of 64 bytes");
}

TEST(MatmulScaled, TilesThatThePanelsCannotHoldAreRefused) {
  auto pool = pool_of(1);
  const auto refusal = [&](const Kind& kind) {
    const Matrix w = random_matrix(kind, 64, 64, 15);
    const auto result = PackedMatrix::pack(w.view, {Isa::avx2, Numerics::fast}, *pool);
    return result.ok() ? "packed" : result.error().text();
  };
  EXPECT_EQ(refusal({"", DType::f8_e4m3, DType::f8_e8m0, 1, 32}),
            "matrix F8_E4M3 64x64: has scales of 1x32 tiles, FP8 products read multiples of 32x32");
  EXPECT_EQ(refusal({"", DType::f4_e2m1, DType::f32, 1, 32}),
            "matrix F4 64x64: has F32 scales of 1x32 tiles, FP4 products read F8_E8M0 scales of "
            "1x32 tiles");
  EXPECT_EQ(refusal({"", DType::f4_e2m1, DType::f32, 0, 0, false}),
            "matrix F4 64x64: has no scales");
  EXPECT_EQ(refusal({"", DType::bf16, DType::f32, 32, 32}),
            "matrix BF16 64x64: has scales beside its codes");
  Matrix w = random_matrix(kKinds[0], 64, 64, 16);
  w.view.scales.shape = {2, 3};
  const auto result = PackedMatrix::pack(w.view, {Isa::avx2, Numerics::fast}, *pool);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().text().find("shape 2x3"), std::string::npos);
}

// Experts as a layer has them: rows sorted by expert, some without rows.
TEST(MatmulScaled, SegmentsAreProductsOfTheirOwnRows) {
  auto pool = pool_of(3);
  const std::vector<uint32_t> rows{3, 0, 1, 30, 7, 0};
  constexpr size_t kInputs = 160, kAll = 41;
  const std::vector<float> x = random_rows(kAll, kInputs, 17);
  for (const Kind& kind : kKinds) {
    for (Isa isa : {Isa::ref, Isa::avx2, Isa::emulated512}) {
      for (ActivationForms wish : {ActivationForms{0}, kRefined}) {
        const Target target{isa, Numerics::fast};
        std::vector<PackedMatrix> ws;
        for (size_t s = 0; s < rows.size(); ++s) {
          const Matrix w = random_matrix(kind, 60 + s, kInputs, 18 + static_cast<unsigned>(s));
          ws.push_back(PackedMatrix::pack(w.view, target, *pool).value());
        }
        Activations acts;
        acts.begin(target, rows, kInputs, ws[0].form() | wish);
        ASSERT_EQ(acts.rows(), kAll);
        for (size_t r = 0; r < kAll; ++r) acts.fill_row(r, x.data() + r * kInputs);
        std::vector<std::vector<float>> outs;
        std::vector<Product> products;
        for (size_t s = 0; s < rows.size(); ++s) {
          outs.emplace_back(rows[s] * ws[s].outputs());
          products.push_back({.weights = &ws[s],
                              .segment = static_cast<uint32_t>(s),
                              .out = outs[s].data(),
                              .stride = ws[s].outputs()});
        }
        matmul(*pool, acts, products);
        size_t first = 0;
        for (size_t s = 0; s < rows.size(); first += rows[s], ++s) {
          Activations alone;
          alone.begin(target, rows[s], kInputs, ws[0].form() | wish);
          for (size_t r = 0; r < rows[s]; ++r) {
            alone.fill_row(r, x.data() + (first + r) * kInputs);
          }
          std::vector<float> out(outs[s].size());
          matmul(*pool, alone, {{.weights = &ws[s], .out = out.data(), .stride = ws[s].outputs()}});
          expect_same_bits(outs[s], out, label(kind, isa, rows[s]));
        }
        // All rows of all segments by one matrix.
        std::vector<float> all(kAll * ws[0].outputs());
        matmul(*pool, acts, {{.weights = &ws[0], .out = all.data(), .stride = ws[0].outputs()}});
        all.resize(outs[0].size());
        expect_same_bits(all, outs[0], label(kind, isa, kAll));
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::kernels
