#include "kernels/hyper_connection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tests/golden_error.h"
#include "tests/golden_file.h"

namespace deepinfer::kernels {
namespace {

std::vector<Isa> all_isas() {
  std::vector<Isa> out = {Isa::ref};
  if (cpu_features().avx2) out.insert(out.end(), {Isa::avx2, Isa::emulated512});
  if (cpu_features().avx512_vnni) out.push_back(Isa::avx512);
  return out;
}

std::unique_ptr<ThreadPool> pool_of(size_t threads) {
  return ThreadPool::create({.threads = threads}).value();
}

std::vector<float> normal(size_t n, unsigned seed, float deviation = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0.0f, deviation);
  std::vector<float> out(n);
  for (float& value : out) value = distribution(random);
  return out;
}

struct Case {
  HyperShape shape;
  bool head = false;
  std::vector<float> fn, base, scale, streams;

  Case(size_t streams_n, size_t hidden, size_t rows, bool is_head = false)
      : shape{.streams = streams_n, .hidden = hidden}, head(is_head) {
    const size_t n = streams_n, outputs = head ? n : 2 * n + n * n, width = n * hidden;
    fn = normal(outputs * width, 1, 1.0f / std::sqrt(static_cast<float>(width)));
    base = normal(outputs, 2);
    scale = {0.7f, 1.3f, 2.1f};
    streams = normal(rows * width, 3, 4.0f);
  }
  HyperWeights weights() const {
    return {.fn = fn.data(), .base = base.data(), .scale = scale.data(), .head = head};
  }
  size_t width() const { return shape.streams * shape.hidden; }
};

double sigmoid(double v) { return 1.0 / (1.0 + std::exp(-v)); }

// The definition in double.
struct DoubleMix {
  std::vector<double> pre, post, comb;
};
DoubleMix expected_mix(const Case& c, const float* row) {
  const size_t n = c.shape.streams, outputs = c.base.size(), width = c.width();
  double squares = 0.0;
  for (size_t i = 0; i < width; ++i) squares += double{row[i]} * double{row[i]};
  const double root = std::sqrt(squares / static_cast<double>(width) + double{c.shape.norm_eps});
  std::vector<double> m(outputs);
  for (size_t o = 0; o < outputs; ++o) {
    double sum = 0.0;
    for (size_t i = 0; i < width; ++i) sum += double{c.fn[o * width + i]} * double{row[i]};
    const size_t part = o < n ? 0 : o < 2 * n ? 1 : 2;
    m[o] = sum / root * double{c.scale[part]} + double{c.base[o]};
  }
  DoubleMix out;
  const double eps = double{c.shape.eps};
  for (size_t j = 0; j < n; ++j) out.pre.push_back(sigmoid(m[j]) + eps);
  if (c.head) return out;
  for (size_t j = 0; j < n; ++j) out.post.push_back(2.0 * sigmoid(m[n + j]));
  out.comb.assign(m.begin() + static_cast<ptrdiff_t>(2 * n), m.end());
  for (size_t j = 0; j < n; ++j) {
    double sum = 0.0;
    for (size_t k = 0; k < n; ++k) sum += std::exp(out.comb[j * n + k]);
    for (size_t k = 0; k < n; ++k) {
      out.comb[j * n + k] = std::exp(out.comb[j * n + k]) / sum + eps;
    }
  }
  const auto divide = [&](bool columns) {
    for (size_t a = 0; a < n; ++a) {
      double sum = eps;
      for (size_t b = 0; b < n; ++b) sum += out.comb[columns ? b * n + a : a * n + b];
      for (size_t b = 0; b < n; ++b) out.comb[columns ? b * n + a : a * n + b] /= sum;
    }
  };
  divide(true);
  for (size_t i = 1; i < c.shape.iterations; ++i) divide(false), divide(true);
  return out;
}

void expect_near(const HyperMix& got, const DoubleMix& want, double tolerance,
                 const std::string& what) {
  for (size_t i = 0; i < want.pre.size(); ++i) {
    EXPECT_NEAR(got.pre[i], want.pre[i], tolerance) << what << " pre " << i;
  }
  for (size_t i = 0; i < want.post.size(); ++i) {
    EXPECT_NEAR(got.post[i], want.post[i], tolerance) << what << " post " << i;
  }
  for (size_t i = 0; i < want.comb.size(); ++i) {
    EXPECT_NEAR(got.comb[i], want.comb[i], tolerance) << what << " comb " << i;
  }
}

// A row of ones whose products with fn are the given m: the statistic is 1.
HyperMix mix_of(Isa isa, const std::vector<float>& m, const std::vector<float>& scale,
                const std::vector<float>& base, float eps) {
  const HyperShape shape{.streams = 4, .hidden = 3, .eps = eps, .norm_eps = 0.0f};
  std::vector<float> fn(m.size() * 12, 0.0f);
  for (size_t o = 0; o < m.size(); ++o) fn[o * 12 + o % 12] = m[o];
  const std::vector<float> row(12, 1.0f);
  HyperMix mix;
  hyper_mix(*pool_of(1), isa, shape, {.fn = fn.data(), .base = base.data(), .scale = scale.data()},
            row.data(), 1, &mix);
  return mix;
}

// Spec v4.md 4.1.
TEST(HyperConnection, MicroVector) {
  std::vector<float> m, base;
  for (int i = 0; i < 24; ++i) {
    m.push_back(static_cast<float>(std::sin(i + 1)));
    base.push_back(static_cast<float>(0.1 * std::cos(i)));
  }
  const DoubleMix want{
      {0.6273207, 0.6244977, 0.5072368, 0.3828671},
      {0.8486247, 0.9792591, 1.1294022, 1.1599788},
      {.4194917, .1966519, .1593736, .2244819, .0441642, .4764562, .4472875, .0320910, .0038114,
       .0212904, .2837327, .6911646, .5325318, .3056005, .1096052, .0522615}};
  for (Isa isa : all_isas()) {
    const HyperMix got = mix_of(isa, m, {0.5f, 0.25f, 2.0f}, base, 1e-6f);
    expect_near(got, want, 1e-6, std::string(isa_name(isa)));
  }
}

TEST(HyperConnection, UnitsOfV41) {
  const GoldenFile golden("deepseek_v41/units.safetensors");
  const auto vector = [&](const char* name) {
    const auto values = golden[name].as<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  const auto doubles = [&](const char* name) {
    const auto values = golden[name].as<float>();
    return std::vector<double>(values.begin(), values.end());
  };
  const DoubleMix want{doubles("mhc.pre"), doubles("mhc.post"), doubles("mhc.comb")};
  ASSERT_EQ(want.comb.size(), 16u);
  for (Isa isa : all_isas()) {
    const HyperMix got =
        mix_of(isa, vector("mhc.in"), vector("mhc.scale"), vector("mhc.base"), 1e-6f);
    const auto compare = [&](const auto& values, const std::vector<double>& expected,
                             const char* what) {
      for (size_t i = 0; i < expected.size(); ++i) {
        expect_error("deepseek_v41/units", "hyper-connection mixes, largest",
                     std::abs(double{values[i]} - expected[i]), 1e-6,
                     std::string(isa_name(isa)) + " " + what + " " + std::to_string(i));
      }
    };
    compare(got.pre, want.pre, "pre");
    compare(got.post, want.post, "post");
    compare(got.comb, want.comb, "comb");
  }
}

TEST(HyperConnection, MixesOfOddShapes) {
  for (Isa isa : all_isas()) {
    for (size_t n : {1, 2, 3, 4, 5, 8}) {
      for (size_t hidden : {1, 5, 16, 67, 700}) {
        for (bool head : {false, true}) {
          const Case c(n, hidden, 7, head);
          std::vector<HyperMix> mixes(7);
          hyper_mix(*pool_of(2), isa, c.shape, c.weights(), c.streams.data(), 7, mixes.data());
          for (size_t r = 0; r < 7; ++r) {
            expect_near(mixes[r], expected_mix(c, c.streams.data() + r * c.width()), 4e-6,
                        std::string(isa_name(isa)) + " n " + std::to_string(n) + " hidden " +
                            std::to_string(hidden) + " row " + std::to_string(r));
          }
        }
      }
    }
  }
}

bool same_bits(const HyperMix& a, const HyperMix& b) {
  return std::memcmp(&a, &b, sizeof(HyperMix)) == 0;
}

TEST(HyperConnection, ARowHasItsBitsAloneInABatchAndOnAnyThreads) {
  constexpr size_t kRows = 70;
  const Case c(4, 1030, kRows);  // three segments
  for (Isa isa : all_isas()) {
    std::vector<HyperMix> alone(kRows);
    for (size_t r = 0; r < kRows; ++r) {
      hyper_mix(*pool_of(1), isa, c.shape, c.weights(), c.streams.data() + r * c.width(), 1,
                &alone[r]);
    }
    for (size_t threads : {1, 3}) {
      const auto pool = pool_of(threads);
      for (size_t rows : {size_t{2}, size_t{3}, size_t{5}, size_t{17}, size_t{33}, kRows}) {
        std::vector<HyperMix> mixes(rows);
        hyper_mix(*pool, isa, c.shape, c.weights(), c.streams.data(), rows, mixes.data());
        for (size_t r = 0; r < rows; ++r) {
          EXPECT_TRUE(same_bits(mixes[r], alone[r]))
              << isa_name(isa) << " rows " << rows << " threads " << threads << " row " << r;
        }
      }
    }
  }
}

TEST(HyperConnection, CollapseAndExpandOfOddShapes) {
  for (Isa isa : all_isas()) {
    const HyperRowOps& ops = hyper_row_ops(isa);
    for (size_t n = 1; n <= kMaxStreams; ++n) {
      for (size_t hidden : {1, 7, 8, 15, 16, 17, 33, 100}) {
        std::vector<float> x = normal(n * hidden + 1, 4), f = normal(hidden, 5);
        std::vector<float> out(hidden + 1, -77.0f);
        HyperMix mix;
        const auto values = normal(n * n + 2 * n, 6);
        std::copy_n(values.begin(), n, mix.pre.begin());
        std::copy_n(values.begin() + static_cast<ptrdiff_t>(n), n, mix.post.begin());
        std::copy_n(values.begin() + static_cast<ptrdiff_t>(2 * n), n * n, mix.comb.begin());
        x.back() = -77.0f;
        const std::vector<float> before = x;
        ops.collapse(x.data(), mix.pre.data(), n, hidden, out.data());
        ops.expand(x.data(), f.data(), mix, n, hidden);
        for (size_t i = 0; i < hidden; ++i) {
          double collapsed = 0.0;
          for (size_t j = 0; j < n; ++j) {
            collapsed += double{mix.pre[j]} * double{before[j * hidden + i]};
            double sum = double{mix.post[j]} * double{f[i]};
            for (size_t from = 0; from < n; ++from) {
              sum += double{mix.comb[from * n + j]} * double{before[from * hidden + i]};
            }
            EXPECT_NEAR(x[j * hidden + i], sum, 5e-6) << isa_name(isa) << " n " << n;
          }
          EXPECT_NEAR(out[i], collapsed, 5e-6) << isa_name(isa) << " n " << n;
        }
        EXPECT_EQ(x.back(), -77.0f);
        EXPECT_EQ(out.back(), -77.0f);
      }
    }
  }
}

TEST(HyperConnection, EmulatedEqualsAvx512) {
  if (!cpu_features().avx512_vnni) return;
  const Case c(4, 1027, 9);
  std::vector<HyperMix> real(9), emulated(9);
  const auto pool = pool_of(2);
  hyper_mix(*pool, Isa::avx512, c.shape, c.weights(), c.streams.data(), 9, real.data());
  hyper_mix(*pool, Isa::emulated512, c.shape, c.weights(), c.streams.data(), 9, emulated.data());
  for (size_t r = 0; r < 9; ++r) EXPECT_TRUE(same_bits(real[r], emulated[r])) << "row " << r;
  std::vector<float> a = c.streams, b = c.streams, f = normal(1027, 9), u(1027), v(1027);
  hyper_row_ops(Isa::avx512).expand(a.data(), f.data(), real[0], 4, 1027);
  hyper_row_ops(Isa::emulated512).expand(b.data(), f.data(), real[0], 4, 1027);
  EXPECT_EQ(a, b);
  hyper_row_ops(Isa::avx512).collapse(a.data(), real[0].pre.data(), 4, 1027, u.data());
  hyper_row_ops(Isa::emulated512).collapse(a.data(), real[0].pre.data(), 4, 1027, v.data());
  EXPECT_EQ(u, v);
}

}  // namespace
}  // namespace deepinfer::kernels
