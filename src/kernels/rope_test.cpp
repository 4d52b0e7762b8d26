#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <string>

#include "tests/golden_error.h"
#include "tests/golden_file.h"

namespace deepinfer::kernels {
namespace {

// The scalings once more, in double and dimension by dimension.
double expected_frequency(const RopeParameters& p, size_t pair) {
  const double dims = static_cast<double>(p.dims);
  const double plain = std::pow(p.theta, -2.0 * static_cast<double>(pair) / dims);
  const double turns = p.original_context * plain / (2.0 * std::numbers::pi);
  switch (p.scaling) {
    case RopeScalingKind::none:
      return plain;
    case RopeScalingKind::linear:
      return plain / p.factor;
    case RopeScalingKind::llama3: {
      if (turns > p.high_freq_factor) return plain;
      if (turns < p.low_freq_factor) return plain / p.factor;
      const double kept = (turns - p.low_freq_factor) / (p.high_freq_factor - p.low_freq_factor);
      return plain * (kept + (1.0 - kept) / p.factor);
    }
    case RopeScalingKind::yarn: {
      const auto border = [&](double rotations) {
        const double period = p.original_context / (2.0 * std::numbers::pi * rotations);
        return dims / 2.0 * std::log(period) / std::log(p.theta);
      };
      const double low = std::fmax(std::floor(border(p.beta_fast)), 0.0);
      const double high = std::fmin(std::ceil(border(p.beta_slow)), dims - 1.0);
      double ramp = (static_cast<double>(pair) - low) / (high - low);
      ramp = std::fmin(std::fmax(ramp, 0.0), 1.0);
      return plain * (1.0 - ramp) + plain / p.factor * ramp;
    }
  }
  return 0.0;
}

void expect_frequencies(const RopeParameters& p) {
  const RopeTable table = RopeTable::create(p).value();
  ASSERT_EQ(table.pairs(), p.dims / 2);
  for (size_t i = 0; i < table.pairs(); ++i) {
    const double expected = expected_frequency(p, i);
    EXPECT_NEAR(table.frequencies()[i] / expected, 1.0, 1e-6) << "pair " << i;
  }
}

TEST(Rope, PlainAndLinear) {
  for (size_t dims : {2, 64, 80, 128}) {
    for (double theta : {10000.0, 500000.0, 1000000.0}) {
      expect_frequencies({.theta = theta, .dims = dims});
      expect_frequencies(
          {.theta = theta, .dims = dims, .scaling = RopeScalingKind::linear, .factor = 4.0});
    }
  }
}

TEST(Rope, Llama3) {
  for (double context : {32.0, 8192.0}) {
    expect_frequencies({.theta = 500000.0,
                        .dims = 128,
                        .scaling = RopeScalingKind::llama3,
                        .factor = 8.0,
                        .low_freq_factor = 1.0,
                        .high_freq_factor = 4.0,
                        .original_context = context});
  }
}

TEST(Rope, Yarn) {
  for (double context : {64.0, 4096.0, 32768.0}) {
    expect_frequencies({.theta = 1000000.0,
                        .dims = 64,
                        .scaling = RopeScalingKind::yarn,
                        .factor = 40.0,
                        .original_context = context});
  }
}

TEST(Rope, UnitsOfV41) {
  const GoldenFile golden("deepseek_v41/units.safetensors");
  const RopeParameters yarn{.theta = 160000.0,
                            .dims = 64,
                            .scaling = RopeScalingKind::yarn,
                            .factor = 16.0,
                            .original_context = 65536.0};
  for (const auto& [p, name] :
       {std::pair{RopeParameters{.theta = 10000.0, .dims = 64}, "rope_freq_10000"},
        {yarn, "rope_freq_160000_yarn16"}}) {
    const RopeTable table = RopeTable::create(p).value();
    const std::span<const float> expected = golden[name].as<float>();
    ASSERT_EQ(table.pairs(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      expect_error("deepseek_v41/units", "RoPE frequencies, relative",
                   std::abs(double{table.frequencies()[i]} / double{expected[i]} - 1.0), 3e-7,
                   std::string(name) + " pair " + std::to_string(i));
    }
  }
}

TEST(Rope, FillIsCosineAndSineOfTheFp32Angle) {
  RopeParameters p{.theta = 10000.0, .dims = 64};
  p.attention_factor = 1.25;
  const RopeTable table = RopeTable::create(p).value();
  std::vector<float> cosine(32), sine(32);
  for (uint64_t position : {0, 1, 511, 8191, 131071, 1000000}) {
    table.fill(position, cosine.data(), sine.data());
    for (size_t i = 0; i < 32; ++i) {
      const double angle = static_cast<float>(position) * table.frequencies()[i];
      EXPECT_NEAR(cosine[i], 1.25 * std::cos(angle), 1.5e-7) << position << " " << i;
      EXPECT_NEAR(sine[i], 1.25 * std::sin(angle), 1.5e-7) << position << " " << i;
    }
  }
}

TEST(Rope, FrequencyFactorsDivide) {
  RopeParameters p{.theta = 10000.0, .dims = 4};
  const RopeTable plain = RopeTable::create(p).value();
  p.freq_factors = {1.0f, 8.0f};
  const RopeTable divided = RopeTable::create(p).value();
  EXPECT_EQ(divided.frequencies()[0], plain.frequencies()[0]);
  EXPECT_EQ(divided.frequencies()[1], plain.frequencies()[1] / 8.0f);
}

TEST(Rope, RefusesWhatMakesNoTable) {
  const auto refused = [](RopeParameters p, const std::string& part) {
    const Result<RopeTable> table = RopeTable::create(p);
    ASSERT_FALSE(table.ok());
    EXPECT_NE(table.error().text().find(part), std::string::npos) << table.error().text();
  };
  refused({.dims = 0}, "0");
  refused({.dims = 63}, "63");
  refused({.theta = 0.0, .dims = 64}, "theta");
  refused({.theta = std::nan(""), .dims = 64}, "theta");
  refused({.dims = 64, .factor = -1.0}, "factor");
  refused({.dims = 64, .freq_factors = {1.0f}}, "32");
  refused({.dims = 64, .scaling = RopeScalingKind::llama3}, "original context");
  refused({.dims = 64,
           .scaling = RopeScalingKind::llama3,
           .low_freq_factor = 4.0,
           .high_freq_factor = 4.0,
           .original_context = 8192},
          "high");
}

}  // namespace
}  // namespace deepinfer::kernels
