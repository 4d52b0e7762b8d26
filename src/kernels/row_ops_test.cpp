#include "kernels/row_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

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

std::vector<size_t> lengths() {
  std::vector<size_t> out;
  for (size_t n = 1; n <= 70; ++n) out.push_back(n);
  out.insert(out.end(), {127, 128, 129, 576, 2048, 2051});
  return out;
}

// n values one float off any alignment, with a guard behind that must not change.
class Row {
 public:
  Row(size_t n, unsigned seed) : values_(n + 1 + kGuard, -77.0f) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, 3.0f);
    for (size_t i = 0; i < n; ++i) values_[1 + i] = normal(random);
  }
  float* data() { return values_.data() + 1; }
  const float* data() const { return values_.data() + 1; }
  float& operator[](size_t i) { return values_[1 + i]; }
  size_t size() const { return values_.size() - 1 - kGuard; }
  bool guard_stands() const {
    return values_[0] == -77.0f &&
           std::count(values_.end() - kGuard, values_.end(), -77.0f) == kGuard;
  }
  bool operator==(const Row& other) const {
    return values_.size() == other.values_.size() &&
           std::memcmp(values_.data(), other.values_.data(), values_.size() * sizeof(float)) == 0;
  }

 private:
  static constexpr ptrdiff_t kGuard = 20;
  std::vector<float> values_;
};

double ulps(float got, double expected) {
  const float nearest = static_cast<float>(expected);
  const float step = std::nextafter(std::abs(nearest), kInfinity) - std::abs(nearest);
  return std::abs(static_cast<double>(got) - expected) / static_cast<double>(step);
}

TEST(RowOps, RmsNorm) {
  for (Isa isa : all_isas()) {
    for (size_t n : lengths()) {
      Row x(n, 1), weight(n, 2), out(n, 3);
      row_ops(isa).rms_norm(x.data(), weight.data(), 1e-5f, out.data(), n);
      double sum = 0.0;
      for (size_t i = 0; i < n; ++i) sum += double{x[i]} * double{x[i]};
      const double factor = 1.0 / std::sqrt(sum / static_cast<double>(n) + double{1e-5f});
      for (size_t i = 0; i < n; ++i) {
        EXPECT_LT(ulps(out[i], double{x[i]} * factor * double{weight[i]}), 6.0)
            << isa_name(isa) << " n " << n << " i " << i;
      }
      EXPECT_TRUE(out.guard_stands()) << isa_name(isa) << " n " << n;
      row_ops(isa).rms_norm(x.data(), weight.data(), 1e-5f, x.data(), n);
      EXPECT_TRUE(std::equal(x.data(), x.data() + n, out.data())) << "in place";
    }
  }
}

TEST(RowOps, SiluMul) {
  for (Isa isa : all_isas()) {
    for (size_t n : lengths()) {
      Row gate(n, 4), up(n, 5), out(n, 6);
      row_ops(isa).silu_mul(gate.data(), up.data(), out.data(), n);
      for (size_t i = 0; i < n; ++i) {
        const double g = double{gate[i]};
        EXPECT_LT(ulps(out[i], g / (1.0 + std::exp(-g)) * double{up[i]}), 5.0)
            << isa_name(isa) << " n " << n << " gate " << gate[i];
      }
      EXPECT_TRUE(out.guard_stands());
    }
  }
}

TEST(RowOps, SiluAtTheEnds) {
  for (Isa isa : all_isas()) {
    float gate[] = {0.0f, -80.0f, -200.0f, 200.0f, 3e38f, -3e38f, kNaN, kInfinity};
    float up[8], out[8];
    std::fill(up, up + 8, 1.0f);
    row_ops(isa).silu_mul(gate, up, out, 8);
    EXPECT_EQ(out[0], 0.0f);
    EXPECT_NEAR(out[1] / (-80.0 * std::exp(-80.0)), 1.0, 1e-6) << isa_name(isa);
    EXPECT_EQ(out[2], 0.0f);
    EXPECT_EQ(out[3], 200.0f);
    EXPECT_EQ(out[4], 3e38f);
    EXPECT_EQ(out[5], 0.0f);
    EXPECT_TRUE(std::isnan(out[6])) << isa_name(isa);
    EXPECT_EQ(out[7], kInfinity);
  }
}

// silu(x) = x / (1 + exp(-x)): for a very negative x it is x * exp(x), so that silu_mul with the
// reciprocal shows the exponential itself.
TEST(RowOps, ExponentialIsWithinTwoUlp) {
  for (Isa isa : all_isas()) {
    double worst = 0.0;
    for (float x = -86.0f; x < -20.0f; x += 0.00137f) {
      const float one = 1.0f;
      float out = 0.0f;
      row_ops(isa).silu_mul(&x, &one, &out, 1);
      worst = std::max(worst, ulps(out, double{x} * std::exp(double{x})));
    }
    EXPECT_LT(worst, 3.0) << isa_name(isa);  // and the roundings of the sum and the division
  }
}

TEST(RowOps, Add) {
  for (Isa isa : all_isas()) {
    for (size_t n : lengths()) {
      Row acc(n, 7), x(n, 8);
      const Row before = acc;
      row_ops(isa).add(acc.data(), x.data(), n);
      for (size_t i = 0; i < n; ++i) EXPECT_EQ(acc[i], before.data()[i] + x[i]);
      EXPECT_TRUE(acc.guard_stands());
    }
  }
}

TEST(RowOps, Rope) {
  for (Isa isa : all_isas()) {
    for (size_t pairs : {1, 5, 8, 15, 16, 17, 32, 40, 64}) {
      for (RopePairing pairing : {RopePairing::half_split, RopePairing::interleaved}) {
        const bool half = pairing == RopePairing::half_split;
        Row x(2 * pairs + 3, 9), angle(pairs, 10), cosine(pairs, 0), sine(pairs, 0);
        for (size_t i = 0; i < pairs; ++i) {
          cosine[i] = std::cos(angle[i]);
          sine[i] = std::sin(angle[i]);
        }
        Row before = x;
        row_ops(isa).rope(x.data(), cosine.data(), sine.data(), pairs, pairing);
        for (size_t i = 0; i < pairs; ++i) {
          const size_t a = half ? i : 2 * i, b = half ? i + pairs : 2 * i + 1;
          const double c = double{cosine[i]}, s = double{sine[i]};
          const double first = double{before[a]} * c - double{before[b]} * s;
          const double second = double{before[b]} * c + double{before[a]} * s;
          EXPECT_NEAR(x[a], first, 2e-6) << isa_name(isa) << " pairs " << pairs << " i " << i;
          EXPECT_NEAR(x[b], second, 2e-6) << isa_name(isa) << " pairs " << pairs << " i " << i;
        }
        for (size_t i = 2 * pairs; i < x.size(); ++i) EXPECT_EQ(x[i], before[i]);
      }
    }
  }
}

TEST(RowOps, ArgmaxTakesTheLowestIndexOfTheMaximum) {
  for (Isa isa : all_isas()) {
    const RowOps& ops = row_ops(isa);
    for (size_t n : lengths()) {
      Row x(n, 11);
      const auto expected = std::max_element(x.data(), x.data() + n) - x.data();
      EXPECT_EQ(ops.argmax(x.data(), n), static_cast<size_t>(expected)) << isa_name(isa) << n;
      x[n - 1] = x[n / 2] = 100.0f;
      EXPECT_EQ(ops.argmax(x.data(), n), n / 2) << isa_name(isa) << " n " << n;
      for (size_t at : {size_t{0}, n / 2, n - 1}) {
        Row bad = x;
        bad[at] = kNaN;
        EXPECT_EQ(ops.argmax(bad.data(), n), n) << isa_name(isa) << " n " << n << " at " << at;
      }
      for (size_t i = 0; i < n; ++i) x[i] = -kInfinity;
      EXPECT_EQ(ops.argmax(x.data(), n), 0u) << isa_name(isa) << " n " << n;
    }
  }
}

TEST(RowOps, LogSumExp) {
  for (Isa isa : all_isas()) {
    const RowOps& ops = row_ops(isa);
    for (size_t n : lengths()) {
      Row x(n, 12);
      if (n > 3) x[2] = -kInfinity;  // a masked token
      double sum = 0.0;
      for (size_t i = 0; i < n; ++i) sum += std::exp(double{x[i]});
      EXPECT_NEAR(ops.log_sum_exp(x.data(), n), std::log(sum), 2e-7) << isa_name(isa) << n;
      x[n - 1] = kNaN;
      EXPECT_TRUE(std::isnan(ops.log_sum_exp(x.data(), n))) << isa_name(isa) << n;
    }
  }
}

TEST(RowOps, AllFinite) {
  for (Isa isa : all_isas()) {
    const RowOps& ops = row_ops(isa);
    for (size_t n : lengths()) {
      Row x(n, 13);
      x[0] = std::numeric_limits<float>::max();
      EXPECT_TRUE(ops.all_finite(x.data(), n)) << isa_name(isa) << " n " << n;
      for (float bad : {kNaN, kInfinity, -kInfinity}) {
        for (size_t at : {size_t{0}, n / 2, n - 1}) {
          Row y = x;
          y[at] = bad;
          EXPECT_FALSE(ops.all_finite(y.data(), n)) << isa_name(isa) << " n " << n;
        }
      }
    }
  }
}

TEST(RowOps, EmulatedEqualsAvx512) {
  if (!cpu_features().avx512_vnni) return;
  const RowOps &real = row_ops(Isa::avx512), &emulated = row_ops(Isa::emulated512);
  for (size_t n : lengths()) {
    const Row x(n, 14), y(n, 15);
    Row a(n, 0), b(n, 0);
    real.rms_norm(x.data(), y.data(), 1e-6f, a.data(), n);
    emulated.rms_norm(x.data(), y.data(), 1e-6f, b.data(), n);
    EXPECT_EQ(a, b) << "rms_norm " << n;
    real.silu_mul(x.data(), y.data(), a.data(), n);
    emulated.silu_mul(x.data(), y.data(), b.data(), n);
    EXPECT_EQ(a, b) << "silu_mul " << n;
    real.rope(a.data(), x.data(), y.data(), n / 2, RopePairing::half_split);
    emulated.rope(b.data(), x.data(), y.data(), n / 2, RopePairing::half_split);
    EXPECT_EQ(a, b) << "rope " << n;
    EXPECT_EQ(real.log_sum_exp(x.data(), n), emulated.log_sum_exp(x.data(), n)) << n;
  }
}

}  // namespace
}  // namespace deepinfer::kernels
