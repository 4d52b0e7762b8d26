// Goal: every kernel of every instruction set that runs here gives the reference's numbers on odd
// shapes, and a row's bits depend on nothing but the row. Method: random weights made by random
// block bytes with ordinary scales, random activations with an outlier and a zero block.
#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/matmul/matmul_fixture.h"
#include "kernels/matmul/matmul_kernel.h"

namespace deepinfer::kernels {
namespace {

struct Weights {
  std::vector<std::byte> bytes;
  TensorView view;
};

constexpr DType kFast[] = {DType::q4_0, DType::q4_1, DType::q8_0, DType::mxfp4, DType::q4_k,
                           DType::q6_k, DType::bf16, DType::f16,  DType::f32,   DType::f8_e4m3};
constexpr DType kOthers[] = {DType::q5_0,   DType::q5_1,   DType::q2_k,    DType::q3_k,
                             DType::q5_k,   DType::iq4_nl, DType::iq4_xs,  DType::iq2_xxs,
                             DType::iq2_xs, DType::iq2_s,  DType::iq3_xxs, DType::iq3_s,
                             DType::nvfp4,  DType::f8_e5m2};

// Bytes whose every f16 field would be an ordinary number; scales of blocks are overwritten below.
void set_scales(DType dtype, std::byte* block, std::mt19937& rng) {
  std::uniform_real_distribution<float> scale(0.002f, 0.02f);
  const auto f16 = [&](size_t at) {
    const uint16_t code = f32_to_f16(scale(rng));
    std::memcpy(block + at, &code, 2);
  };
  switch (dtype) {
    case DType::q4_0:
    case DType::q5_0:
    case DType::q8_0:
    case DType::iq4_nl:
      f16(0);
      break;
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k:
      f16(0);
      f16(2);
      break;
    case DType::q2_k:
      f16(80);
      f16(82);
      break;
    case DType::q3_k:
      f16(108);
      break;
    case DType::q6_k:
      f16(208);
      break;
    case DType::mxfp4:
      block[0] = static_cast<std::byte>(118 + rng() % 6);
      break;
    case DType::iq4_xs:
    case DType::iq2_xxs:
    case DType::iq2_xs:
    case DType::iq2_s:
    case DType::iq3_xxs:
    case DType::iq3_s:
      f16(0);
      break;
    case DType::nvfp4:
      for (size_t i = 0; i < 4; ++i) block[i] = static_cast<std::byte>(40 + rng() % 16);
      break;
    default:
      break;
  }
}

Weights random_weights(DType dtype, size_t outputs, size_t inputs, unsigned seed) {
  std::mt19937 rng(seed);
  Weights w;
  w.bytes.resize(outputs * row_bytes(dtype, inputs));
  const DTypeInfo& info = dtype_info(dtype);
  if (info.block_elements == 1) {
    std::normal_distribution<float> normal(0, 0.05f);
    for (size_t i = 0; i < outputs * inputs; ++i) {
      const float x = normal(rng);
      std::byte* at = w.bytes.data() + i * info.block_bytes;
      if (dtype == DType::f32) std::memcpy(at, &x, 4);
      const uint16_t half = dtype == DType::bf16 ? f32_to_bf16(x) : f32_to_f16(x);
      if (info.block_bytes == 2) std::memcpy(at, &half, 2);
      if (dtype == DType::f8_e4m3) *at = static_cast<std::byte>(f32_to_e4m3(x));
      if (dtype == DType::f8_e5m2) *at = static_cast<std::byte>(f32_to_e5m2(x));
    }
  } else {
    for (std::byte& b : w.bytes) b = static_cast<std::byte>(rng());
    for (size_t at = 0; at < w.bytes.size(); at += info.block_bytes) {
      set_scales(dtype, w.bytes.data() + at, rng);
    }
  }
  w.view = {dtype, {outputs, inputs}, w.bytes.data()};
  return w;
}

std::vector<float> product(ThreadPool& pool, const Weights& w, const std::vector<float>& x,
                           size_t rows, Target target, ActivationForms wish = 0) {
  PackedMatrix m = PackedMatrix::pack(w.view, target, pool).value();
  Activations acts;
  acts.begin(target, rows, m.inputs(), m.form() | wish);
  for (size_t r = 0; r < rows; ++r) acts.fill_row(r, x.data() + r * m.inputs());
  std::vector<float> out(rows * m.outputs(), -1.0f);
  matmul(pool, acts, {{.weights = &m, .out = out.data(), .stride = m.outputs()}});
  return out;
}

std::string label(DType dtype, Isa isa, Numerics numerics) {
  return std::string(dtype_info(dtype).name) + " " + std::string(isa_name(isa)) + " " +
         std::string(numerics_name(numerics));
}

TEST(Matmul, EveryKernelEqualsTheReferenceBitForBit) {
  auto pool = pool_of(1);
  for (DType dtype : kFast) {
    const size_t inputs = dtype_info(dtype).block_elements == 256 ? 768 : 224;
    const Weights w = random_weights(dtype, 77, inputs, 1);
    const std::vector<float> x = random_rows(9, inputs, 2);
    for (Numerics numerics : {Numerics::fast, Numerics::exact}) {
      const auto expected = product(*pool, w, x, 9, {Isa::ref, numerics});
      for (Isa isa : vector_isas()) {
        expect_same_bits(product(*pool, w, x, 9, {isa, numerics}), expected,
                         label(dtype, isa, numerics));
      }
    }
  }
}

TEST(Matmul, FormatsWithoutAFastKernelEqualTheReferenceBitForBit) {
  auto pool = pool_of(1);
  for (DType dtype : kOthers) {
    const Weights w = random_weights(dtype, 67, 512, 3);
    const std::vector<float> x = random_rows(3, 512, 4);
    const auto expected = product(*pool, w, x, 3, {Isa::ref, Numerics::fast});
    for (Isa isa : vector_isas()) {
      expect_same_bits(product(*pool, w, x, 3, {isa, Numerics::fast}), expected,
                       label(dtype, isa, Numerics::fast));
    }
  }
}

TEST(Matmul, ExactEqualsDoubleWithinRounding) {
  auto pool = pool_of(2);
  for (DType dtype : kFast) {
    const size_t inputs = dtype_info(dtype).block_elements == 256 ? 512 : 96;
    const Weights w = random_weights(dtype, 20, inputs, 5);
    const std::vector<float> x = random_rows(2, inputs, 6);
    const auto out = product(*pool, w, x, 2, {vector_isas().front(), Numerics::exact});
    std::vector<float> row(inputs);
    for (size_t n = 0; n < 20; ++n) {
      deepinfer::decode_row(dtype, w.view.row(n), row.data(), inputs);
      for (size_t m = 0; m < 2; ++m) {
        double sum = 0, terms = 0;
        for (size_t k = 0; k < inputs; ++k) {
          sum += double{row[k]} * x[m * inputs + k];
          terms += std::abs(double{row[k]} * x[m * inputs + k]);
        }
        EXPECT_NEAR(out[m * 20 + n], sum, 1e-5 * terms) << dtype_info(dtype).name;
      }
    }
  }
}

TEST(Matmul, FastIsWithinTheErrorOfInt8Activations) {
  auto pool = pool_of(2);
  for (DType dtype : kFast) {
    const size_t inputs = 512;
    const Weights w = random_weights(dtype, 40, inputs, 7);
    const std::vector<float> x = random_rows(4, inputs, 8);
    const auto exact = product(*pool, w, x, 4, {vector_isas().front(), Numerics::exact});
    const auto fast = product(*pool, w, x, 4, {vector_isas().front(), Numerics::fast});
    double error = 0, power = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      error += std::pow(double{exact[i]} - fast[i], 2);
      power += std::pow(double{exact[i]}, 2);
    }
    EXPECT_LT(std::sqrt(error / power), 0.02) << dtype_info(dtype).name;
  }
}

TEST(Matmul, ARowHasTheSameBitsAloneAndAmongAnyOthers) {
  auto one = pool_of(1);
  auto three = pool_of(3);
  constexpr size_t kRows = 131;
  for (DType dtype : kFast) {
    const size_t inputs = dtype_info(dtype).block_elements == 256 ? 512 : 352;
    const Weights w = random_weights(dtype, 150, inputs, 9);
    const std::vector<float> x = random_rows(kRows, inputs, 10);
    for (Isa isa : vector_isas()) {
      for (Numerics numerics : {Numerics::fast, Numerics::exact}) {
        const auto all = product(*three, w, x, kRows, {isa, numerics});
        for (size_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 17, 24, 25, 49}) {
          const size_t first = (rows * 5) % (kRows - rows);
          const std::vector<float> some(x.begin() + static_cast<long>(first * inputs),
                                        x.begin() + static_cast<long>((first + rows) * inputs));
          const std::vector<float> expected(all.begin() + static_cast<long>(first * 150),
                                            all.begin() + static_cast<long>((first + rows) * 150));
          expect_same_bits(product(*one, w, some, rows, {isa, numerics}), expected,
                           label(dtype, isa, numerics) + " rows " + std::to_string(rows));
        }
      }
    }
  }
}

TEST(Matmul, RefinedRowsAreNearlyExactAndTheSameOnEverySet) {
  auto pool = pool_of(2);
  for (DType dtype : kFast) {
    const Weights w = random_weights(dtype, 60, 512, 22);
    const std::vector<float> x = random_rows(31, 512, 23);
    const auto reference = product(*pool, w, x, 31, {Isa::ref, Numerics::fast}, kRefined);
    const auto exact = product(*pool, w, x, 31, {vector_isas().front(), Numerics::exact});
    double error = 0, power = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      error += std::pow(double{exact[i]} - reference[i], 2);
      power += std::pow(double{exact[i]}, 2);
    }
    EXPECT_LT(std::sqrt(error / power), 1e-4) << dtype_info(dtype).name;
    for (Isa isa : vector_isas()) {
      const Target target{isa, Numerics::fast};
      expect_same_bits(product(*pool, w, x, 31, target, kRefined), reference,
                       label(dtype, isa, Numerics::fast));
      const std::vector<float> last(x.end() - 512, x.end());
      const std::vector<float> expected(reference.end() - 60, reference.end());
      expect_same_bits(product(*pool, w, last, 1, target, kRefined), expected,
                       label(dtype, isa, Numerics::fast));
    }
  }
}

TEST(Matmul, OneInputAndOneOutput) {
  auto pool = pool_of(2);
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (size_t inputs : {1, 2, 3, 31, 33}) {
      const Weights w = random_weights(dtype, 1, inputs, 11);
      const std::vector<float> x = random_rows(1, inputs, 12);
      const auto expected = product(*pool, w, x, 1, {Isa::ref, Numerics::fast});
      for (Isa isa : vector_isas()) {
        expect_same_bits(product(*pool, w, x, 1, {isa, Numerics::fast}), expected,
                         label(dtype, isa, Numerics::fast) + " " + std::to_string(inputs));
      }
    }
  }
}

TEST(Matmul, BiasAndAccumulationComeLast) {
  auto pool = pool_of(2);
  for (Isa isa : vector_isas()) {
    const Target target{isa, Numerics::fast};
    const Weights w = random_weights(DType::q4_0, 37, 64, 13);
    const std::vector<float> x = random_rows(5, 64, 14);
    const auto plain = product(*pool, w, x, 5, target);
    PackedMatrix m = PackedMatrix::pack(w.view, target, *pool).value();
    Activations acts;
    acts.begin(target, 5, 64, m.form());
    for (size_t r = 0; r < 5; ++r) acts.fill_row(r, x.data() + r * 64);
    const std::vector<float> bias = random_rows(1, 37, 15);
    std::vector<float> out = random_rows(5, 40, 16);
    const std::vector<float> before = out;
    matmul(*pool, acts,
           {{.weights = &m,
             .out = out.data(),
             .stride = 40,
             .bias = bias.data(),
             .epilogue = Epilogue::add}});
    for (size_t r = 0; r < 5; ++r) {
      for (size_t n = 0; n < 40; ++n) {
        const float expected =
            n < 37 ? before[r * 40 + n] + (plain[r * 37 + n] + bias[n]) : before[r * 40 + n];
        ASSERT_EQ(out[r * 40 + n], expected) << isa_name(isa) << " row " << r << " output " << n;
      }
    }
  }
}

TEST(Matmul, SeveralProductsShareOneRegion) {
  auto pool = pool_of(3);
  for (Isa isa : vector_isas()) {
    const Target target{isa, Numerics::fast};
    const DType kinds[] = {DType::q4_k, DType::q6_k, DType::f16, DType::q8_0};
    std::vector<Weights> ws;
    std::vector<PackedMatrix> ms;
    ActivationForms forms = 0;
    for (DType dtype : kinds) {
      ws.push_back(random_weights(dtype, 50 + ws.size() * 13, 256, 17));
      ms.push_back(PackedMatrix::pack(ws.back().view, target, *pool).value());
      forms |= ms.back().form();
    }
    const std::vector<float> x = random_rows(7, 256, 18);
    Activations acts;
    acts.begin(target, 7, 256, forms);
    for (size_t r = 0; r < 7; ++r) acts.fill_row(r, x.data() + r * 256);
    std::vector<std::vector<float>> outs;
    for (const PackedMatrix& m : ms) outs.emplace_back(7 * m.outputs());
    std::vector<Product> products;
    for (size_t i = 0; i < ms.size(); ++i) {
      products.push_back({.weights = &ms[i], .out = outs[i].data(), .stride = ms[i].outputs()});
    }
    matmul(*pool, acts, products);
    for (size_t i = 0; i < ms.size(); ++i) {
      expect_same_bits(outs[i], product(*pool, ws[i], x, 7, target), label(kinds[i], isa, {}));
    }
  }
}

TEST(Matmul, NotANumberReachesTheOutputs) {
  auto pool = pool_of(1);
  for (Isa isa : vector_isas()) {
    for (DType dtype : kFast) {
      for (float bad :
           {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        const Weights w = random_weights(dtype, 40, 512, 19);
        std::vector<float> x = random_rows(2, 512, 20);
        x[512 + 300] = bad;
        const auto out = product(*pool, w, x, 2, {isa, Numerics::fast});
        for (size_t n = 0; n < 40; ++n) {
          ASSERT_TRUE(std::isfinite(out[n])) << label(dtype, isa, Numerics::fast);
          ASSERT_FALSE(std::isfinite(out[40 + n])) << label(dtype, isa, Numerics::fast);
        }
      }
    }
  }
}

TEST(Matmul, DecodeRowGivesTheStoredValues) {
  auto pool = pool_of(1);
  for (Isa isa : vector_isas()) {
    for (DType dtype : kFast) {
      const Weights w = random_weights(dtype, 70, 512, 21);
      PackedMatrix m = PackedMatrix::pack(w.view, {isa, Numerics::fast}, *pool).value();
      std::vector<float> expected(512), row(512);
      for (size_t n : {0, 1, 15, 16, 63, 64, 69}) {
        deepinfer::decode_row(dtype, w.view.row(n), expected.data(), 512);
        m.decode_row(n, row.data());
        expect_same_bits(row, expected, label(dtype, isa, Numerics::fast));
      }
    }
  }
}

TEST(Matmul, ExplainNamesTheChoiceAndTheRefusals) {
  const Choice fast =
      PackedMatrix::explain(DType::q4_0, 8, 64, {Isa::avx2, Numerics::fast}).value();
  EXPECT_EQ(fast.chosen, "q4_0.int8.avx2");
  const Choice exact =
      PackedMatrix::explain(DType::q4_0, 8, 64, {Isa::avx2, Numerics::exact}).value();
  EXPECT_EQ(exact.chosen, "q4_0.f32.avx2");
  ASSERT_EQ(exact.refused.size(), 1u);
  EXPECT_EQ(exact.refused[0].second, "rounds activations to int8");
  const auto unknown = PackedMatrix::explain(DType::i16, 8, 64, {Isa::avx2, Numerics::fast});
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().text().find("no kernel reads this format"), std::string::npos);
}

}  // namespace
}  // namespace deepinfer::kernels
