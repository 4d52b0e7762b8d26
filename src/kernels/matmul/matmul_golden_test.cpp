// Products of every GGML format without rounded activations against those of the `gguf` package's
// values, summed in double (tests/golden/quant). The blocks are random bytes.

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/matmul/matmul_fixture.h"
#include "tests/golden_error.h"
#include "tests/golden_file.h"

namespace deepinfer::kernels {
namespace {

// Errors are relative to the sum of all terms' sizes, or to this: packed MXFP4 has no scales below
// 2^-126, and terms so small are subnormal.
constexpr double kSmallestSum = 0x1p-100;

class MatmulGolden : public testing::TestWithParam<const char*> {
 protected:
  // A row of the matrix is a block.
  std::vector<float> product(const TensorView& weights, std::span<const float> x, Isa isa) {
    const Target target = {isa, Numerics::exact};
    const PackedMatrix packed = PackedMatrix::pack(weights, target, *pool_).value();
    Activations activations;
    activations.begin(target, 1, packed.inputs(), packed.form());
    activations.fill_row(0, x.data());
    std::vector<float> out(packed.outputs());
    matmul(*pool_, activations,
           {{.weights = &packed, .out = out.data(), .stride = packed.outputs()}});
    return out;
  }

  const std::unique_ptr<ThreadPool> pool_ = pool_of(1);
};

TEST_P(MatmulGolden, ExactProductsAreThoseOfTheValues) {
  const std::string name = GetParam();
  const GoldenFile golden("quant/ggml.safetensors");
  const GoldenTensor& raw = golden[name + ".raw"];
  const std::span<const float> x = golden[name + ".x"].as<float>();
  const std::span<const float> values = golden[name + ".values"].as<float>();
  const std::span<const float> expected = golden[name + ".dot"].as<float>();
  const size_t blocks = raw.shape.at(0), width = x.size();
  ASSERT_EQ(values.size(), blocks * width);
  ASSERT_EQ(expected.size(), blocks);
  std::vector<Isa> isas = vector_isas();
  isas.push_back(Isa::ref);
  const TensorView weights = {
      dtype_from_name(name).value(), {blocks, width}, raw.as<std::byte>().data()};
  for (const Isa isa : isas) {
    const std::vector<float> got = product(weights, x, isa);
    for (size_t block = 0; block < blocks; ++block) {
      const std::string where =
          name + " " + std::string(isa_name(isa)) + " block " + std::to_string(block);
      if (!std::isfinite(expected[block])) {
        EXPECT_FALSE(std::isfinite(got[block])) << where;
        continue;
      }
      double terms = kSmallestSum;
      for (size_t i = 0; i < width; ++i) {
        terms += std::abs(double{values[block * width + i]} * double{x[i]});
      }
      const double error = std::abs(double{got[block]} - double{expected[block]});
      expect_error("quant/ggml", "products, relative", error / terms, 1e-5, where);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, MatmulGolden,
                         testing::Values("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K",
                                         "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
                                         "NVFP4", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace deepinfer::kernels
