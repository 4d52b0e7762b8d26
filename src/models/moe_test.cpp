// Experts as grouped products against a plain loop over rows and experts, and the bits of a row:
// alone or in a batch, by any number of threads, from a source that hands experts out in parts.

#include "models/moe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "models/experts/resident_experts.h"
#include "models/model_runner.h"

namespace deepinfer::models {
namespace {

using kernels::RouterScore;

struct MoeShape {
  size_t hidden = 64, width = 96, shared_width = 96;
  size_t experts = 8, per_token = 3, vocab = 16;
  float clamp = 0.0f;
  RouterScore score = RouterScore::sqrt_softplus;
  bool bias = true;
  bool bias_vl = false;
  bool by_id = false;
};

std::vector<float> random_floats(size_t count, uint32_t seed, float size = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, size);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TensorView view_of(const std::vector<float>& values, uint64_t rows) {
  return {.dtype = DType::f32,
          .shape = {rows, values.size() / rows},
          .data = reinterpret_cast<const std::byte*>(values.data())};
}

struct PlainExpert {
  std::vector<float> gate, up, down;
  PlainExpert(size_t hidden, size_t width, uint32_t seed)
      : gate(random_floats(width * hidden, seed, 0.2f)),
        up(random_floats(width * hidden, seed + 1, 0.2f)),
        down(random_floats(width * hidden, seed + 2, 0.2f)) {}

  weights::ExpertTensors tensors(size_t hidden) const {
    const size_t width = gate.size() / hidden;
    return {.gate = {.codes = view_of(gate, width), .scales = {}},
            .up = {.codes = view_of(up, width), .scales = {}},
            .down = {.codes = view_of(down, hidden), .scales = {}}};
  }

  // out += weight * expert(h)
  void add(const float* h, size_t hidden, double weight, double clamp,
           std::vector<double>& out) const {
    const size_t width = gate.size() / hidden;
    for (size_t i = 0; i < width; ++i) {
      double g = 0, u = 0;
      for (size_t k = 0; k < hidden; ++k) {
        g += double{gate[i * hidden + k]} * double{h[k]};
        u += double{up[i * hidden + k]} * double{h[k]};
      }
      if (clamp > 0) g = std::min(g, clamp), u = std::clamp(u, -clamp, clamp);
      const double x = weight * g / (1.0 + std::exp(-g)) * u;
      for (size_t n = 0; n < hidden; ++n) out[n] += double{down[n * width + i]} * x;
    }
  }
};

// The layer as vectors of floats, and what it computes, in double.
struct PlainMoe {
  MoeShape shape;
  std::vector<float> router, bias, bias_vl;
  std::vector<int32_t> by_id;
  std::vector<PlainExpert> experts;
  PlainExpert shared;

  explicit PlainMoe(const MoeShape& s)
      : shape(s),
        router(random_floats(s.experts * s.hidden, 1, 0.3f)),
        bias(random_floats(s.experts, 2, 0.3f)),
        bias_vl(random_floats(s.experts, 3, 0.3f)),
        shared(s.hidden, std::max<size_t>(s.shared_width, 1), 4) {
    std::mt19937 random(5);
    for (size_t i = 0; i < s.vocab * s.per_token; ++i) {
      by_id.push_back(static_cast<int32_t>(random() % s.experts));
    }
    for (uint32_t e = 0; e < s.experts; ++e) experts.emplace_back(s.hidden, s.width, 100 + 3 * e);
  }

  weights::MoeConfig config() const {
    return {.experts = static_cast<uint32_t>(shape.experts),
            .shared = shape.shared_width > 0 ? 1u : 0u,
            .per_token = static_cast<uint32_t>(shape.per_token),
            .width = static_cast<uint32_t>(shape.width),
            .shared_width = static_cast<uint32_t>(shape.shared_width),
            .scaling = 1.5,
            .clamp = double{shape.clamp}};
  }

  weights::MoeTensors tensors() const {
    weights::MoeTensors t;
    t.router = view_of(router, shape.experts);
    if (shape.bias) t.bias = view_of(bias, 1);
    if (shape.bias_vl) t.bias_vl = view_of(bias_vl, 1);
    if (shape.by_id) {
      t.by_id = TensorView{.dtype = DType::i32,
                           .shape = {shape.vocab, shape.per_token},
                           .data = reinterpret_cast<const std::byte*>(by_id.data())};
    }
    for (const PlainExpert& expert : experts) t.experts.push_back(expert.tensors(shape.hidden));
    if (shape.shared_width > 0) t.shared = shared.tensors(shape.hidden);
    return t;
  }

  std::vector<int32_t> choose(const std::vector<double>& scores, int32_t id, bool image) const {
    const size_t k = shape.per_token;
    if (shape.by_id) {
      const auto first = by_id.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(id) * k);
      return {first, first + static_cast<ptrdiff_t>(k)};
    }
    const std::vector<float>& used = image && shape.bias_vl ? bias_vl : bias;
    std::vector<int32_t> order(shape.experts);
    std::iota(order.begin(), order.end(), 0);
    const auto rank = [&](int32_t e) {
      const size_t i = static_cast<size_t>(e);
      return scores[i] + (shape.bias ? double{used[i]} : 0.0);
    };
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return rank(a) > rank(b) || (rank(a) == rank(b) && a < b);
    });
    order.resize(k);
    return order;
  }

  std::vector<double> row(const float* h, int32_t id, bool image) const {
    std::vector<double> scores(shape.experts);
    for (size_t e = 0; e < shape.experts; ++e) {
      double logit = 0;
      for (size_t k = 0; k < shape.hidden; ++k) {
        logit += double{router[e * shape.hidden + k]} * double{h[k]};
      }
      scores[e] = shape.score == RouterScore::sigmoid ? 1.0 / (1.0 + std::exp(-logit))
                                                      : std::sqrt(std::log1p(std::exp(logit)));
    }
    const std::vector<int32_t> chosen = choose(scores, id, image);
    double sum = 0;
    for (const int32_t e : chosen) sum += scores[static_cast<size_t>(e)];
    std::vector<double> out(shape.hidden, 0.0);
    const double clamp = double{shape.clamp};
    for (const int32_t e : chosen) {
      const size_t i = static_cast<size_t>(e);
      experts[i].add(h, shape.hidden, scores[i] / sum * 1.5, clamp, out);
    }
    if (shape.shared_width > 0) shared.add(h, shape.hidden, 1.0, clamp, out);
    return out;
  }
};

// At most `most` experts at a time, as a source that reads from disk does.
class PartsSource final : public ExpertSource {
 public:
  PartsSource(ExpertSource& all, size_t most) : all_(all), most_(most) {}
  Result<ExpertLease> acquire(size_t layer, std::span<const int32_t> experts) override {
    check(held_ == 0, "a lease is still out");
    ExpertLease lease = TRY(all_.acquire(layer, experts.first(std::min(most_, experts.size()))));
    ++held_;
    ++leases_;
    lease.release = [this] { --held_; };
    return lease;
  }
  size_t resident_bytes() const override { return 0; }
  size_t leases() const { return leases_; }

 private:
  ExpertSource& all_;
  size_t most_;
  size_t held_ = 0;
  size_t leases_ = 0;
};

class FailingSource final : public ExpertSource {
 public:
  Result<ExpertLease> acquire(size_t, std::span<const int32_t>) override {
    return Error::io("model-3.safetensors", "cannot read at 4096: Input/output error");
  }
  size_t resident_bytes() const override { return 0; }
};

// A layer loaded for one instruction set.
class LoadedMoe {
 public:
  LoadedMoe(const PlainMoe& plain, kernels::Target target, size_t threads,
            uint32_t quantizer_block = 0)
      : pool_(value_or_die(ThreadPool::create({.threads = threads}))),
        moe_({.target = target, .quantizer_block = quantizer_block}, *pool_) {
    MatrixLoader loader(target, *pool_, arena_, {}, 1);
    const weights::MoeTensors tensors = plain.tensors();
    // Not the layer's number in the model: another layer comes first.
    value_or_die(experts_.add_layer({}, "layer 3", loader));
    const size_t source = value_or_die(experts_.add_layer(tensors.experts, "layer 4", loader));
    layer_ = value_or_die(Moe::load(tensors, plain.config(), plain.shape.score, plain.shape.hidden,
                                    source, "layer 4", loader));
    vocab_ = plain.shape.vocab;
  }

  Result<std::vector<float>> try_run(std::span<const float> h, ExpertSource& source,
                                     size_t first_id = 0, bool images = false) {
    const size_t rows = h.size() / layer_.hidden;
    std::vector<int32_t> ids(rows);
    std::vector<uint8_t> image(images ? rows : 0);
    for (size_t r = 0; r < rows; ++r) {
      ids[r] = static_cast<int32_t>((first_id + r) % vocab_);
      if (images) image[r] = (first_id + r) % 2;
    }
    std::vector<float> out(h.size(), 7.0f);
    TRY(moe_.forward(layer_, source, h, rows, ids, image, out.data(), "layer 4", profile_,
                     &routing_));
    return out;
  }
  std::vector<float> run(std::span<const float> h, size_t first_id = 0, bool images = false) {
    return value_or_die(try_run(h, experts_, first_id, images));
  }

  Moe& moe() { return moe_; }
  MoeLayer& layer() { return layer_; }
  ResidentExperts& experts() { return experts_; }
  const Routing& routing() const { return routing_; }
  Profile& profile() { return profile_; }

 private:
  std::unique_ptr<ThreadPool> pool_;
  Arena arena_;
  ResidentExperts experts_;
  Moe moe_;
  MoeLayer layer_;
  Profile profile_;
  Routing routing_;
  size_t vocab_ = 0;
};

class MoeOnIsa : public ::testing::TestWithParam<kernels::Isa> {
 protected:
  kernels::Target target() const { return {GetParam(), kernels::Numerics::exact}; }
};

std::vector<MoeShape> shapes() {
  return {{},
          {.shared_width = 0},
          {.shared_width = 160, .clamp = 0.7f},
          {.hidden = 72, .width = 40, .shared_width = 40, .score = RouterScore::sigmoid},
          {.per_token = 1, .clamp = 1.0f, .bias = false},
          {.bias_vl = true},
          {.shared_width = 32, .by_id = true}};
}

TEST_P(MoeOnIsa, EqualsAPlainLoop) {
  for (const MoeShape& shape : shapes()) {
    const PlainMoe plain(shape);
    LoadedMoe loaded(plain, target(), 2);
    for (const size_t rows : {1, 2, 7, 33}) {
      const std::vector<float> h = random_floats(rows * shape.hidden, 77);
      const std::vector<float> out = loaded.run(h, 0, true);
      for (size_t r = 0; r < rows; ++r) {
        const std::vector<double> expected =
            plain.row(h.data() + r * shape.hidden, static_cast<int32_t>(r % shape.vocab), r % 2);
        for (size_t i = 0; i < shape.hidden; ++i) {
          const double actual = double{out[r * shape.hidden + i]};
          ASSERT_NEAR(actual, expected[i], 2e-4 * (1.0 + std::abs(expected[i])))
              << "row " << r << " of " << rows << ", element " << i;
        }
      }
    }
  }
}

TEST_P(MoeOnIsa, ARowHasTheSameBitsAloneAndInABatch) {
  for (const MoeShape& shape : shapes()) {
    LoadedMoe loaded(PlainMoe(shape), target(), 2);
    const size_t rows = 41;
    const std::vector<float> h = random_floats(rows * shape.hidden, 78);
    const std::vector<float> all = loaded.run(h);
    for (size_t first = 0; first < rows;) {
      const size_t count = std::min<size_t>(rows - first, 1 + first % 5);
      const std::vector<float> part =
          loaded.run(std::span(h).subspan(first * shape.hidden, count * shape.hidden), first);
      ASSERT_TRUE(std::equal(part.begin(), part.end(),
                             all.begin() + static_cast<ptrdiff_t>(first * shape.hidden)))
          << "rows from " << first;
      first += count;
    }
  }
}

// Two rows without a common expert: every expert has one row, which is not the same one.
TEST_P(MoeOnIsa, RowsOfDisjointExpertsStayApart) {
  const MoeShape shape = {.shared_width = 0};
  LoadedMoe loaded(PlainMoe(shape), target(), 2);
  const std::vector<float> h = random_floats(2 * shape.hidden, 87);
  loaded.moe().set_force(Moe::Force::balanced);
  const std::vector<float> both = loaded.run(h);
  loaded.moe().set_force(Moe::Force::balanced);  // counts rows from the first again
  std::vector<float> apart = loaded.run(std::span(h).first(shape.hidden));
  const std::vector<float> second = loaded.run(std::span(h).last(shape.hidden));
  apart.insert(apart.end(), second.begin(), second.end());
  EXPECT_TRUE(both == apart);
}

// More (row, expert) pairs than the workspace takes at once: the experts come in parts.
TEST_P(MoeOnIsa, ManyRowsHaveTheBitsOfFew) {
  const MoeShape shape = {.hidden = 32, .width = 32, .shared_width = 32, .per_token = 5};
  LoadedMoe loaded(PlainMoe(shape), target(), 2);
  const size_t rows = 500;
  const std::vector<float> h = random_floats(rows * shape.hidden, 79);
  const std::vector<float> all = loaded.run(h);
  for (size_t row = 0; row < rows; row += 37) {
    const std::vector<float> one =
        loaded.run(std::span(h).subspan(row * shape.hidden, shape.hidden), row);
    ASSERT_TRUE(std::equal(one.begin(), one.end(),
                           all.begin() + static_cast<ptrdiff_t>(row * shape.hidden)))
        << row;
  }
}

TEST_P(MoeOnIsa, ThreadsDoNotChangeBits) {
  for (const MoeShape& shape : shapes()) {
    const PlainMoe plain(shape);
    const std::vector<float> h = random_floats(30 * shape.hidden, 80);
    const std::vector<float> expected = LoadedMoe(plain, target(), 1).run(h);
    for (const size_t threads : {2, 5}) {
      EXPECT_TRUE(LoadedMoe(plain, target(), threads).run(h) == expected) << threads;
    }
  }
}

TEST_P(MoeOnIsa, ExpertsInPartsGiveTheSameBits) {
  for (const MoeShape& shape : shapes()) {
    LoadedMoe loaded(PlainMoe(shape), target(), 2);
    for (const size_t rows : {1, 30}) {
      const std::vector<float> h = random_floats(rows * shape.hidden, 81);
      const std::vector<float> expected = loaded.run(h);
      for (const size_t most : {1, 2, 3}) {
        PartsSource parts(loaded.experts(), most);
        EXPECT_TRUE(value_or_die(loaded.try_run(h, parts)) == expected) << most << " at a time";
        if (most == 1) EXPECT_GE(parts.leases(), rows == 1 ? 1 : shape.experts / 2);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, MoeOnIsa, ::testing::ValuesIn(isas_of_this_machine()),
                         [](const auto& parameter) {
                           return std::string(kernels::isa_name(parameter.param));
                         });

constexpr kernels::Target kRef = {kernels::Isa::ref, kernels::Numerics::exact};

TEST(Moe, DenseRowsGoThroughOneExpert) {
  const MoeShape shape = {.clamp = 0.8f};
  const PlainMoe plain(shape);
  LoadedMoe loaded(plain, kRef, 2);
  const std::vector<float> h = random_floats(9 * shape.hidden, 82);
  std::vector<float> out(h.size(), 7.0f);
  ASSERT_TRUE(
      loaded.moe()
          .forward_dense(loaded.layer().shared, 0.8f, h, 9, out.data(), "layer 0", loaded.profile())
          .ok());
  for (size_t r = 0; r < 9; ++r) {
    std::vector<double> expected(shape.hidden);
    plain.shared.add(h.data() + r * shape.hidden, shape.hidden, 1.0, 0.8, expected);
    for (size_t i = 0; i < shape.hidden; ++i) {
      EXPECT_NEAR(double{out[r * shape.hidden + i]}, expected[i],
                  2e-4 * (1.0 + std::abs(expected[i])));
    }
  }
}

TEST(MatrixLoader, TellsEveryKindOfProductOnce) {
  auto pool = value_or_die(ThreadPool::create({.threads = 1}));
  Arena arena;
  MatrixLoader loader(kRef, *pool, arena, {}, 1);
  const std::vector<float> values(64);
  for (const uint64_t rows : {4, 8, 4}) {
    value_or_die(loader.matrix(view_of(values, rows), "matrix"));
  }
  const std::vector<kernels::Choice> choices = loader.choices();
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0].operation, "matmul F32 4x16 exact");
  EXPECT_EQ(choices[1].operation, "matmul F32 8x8 exact");
}

TEST(Moe, RoutingIsTold) {
  const MoeShape shape;
  LoadedMoe loaded(PlainMoe(shape), kRef, 1);
  loaded.run(random_floats(5 * shape.hidden, 83));
  const Routing& routing = loaded.routing();
  ASSERT_EQ(routing.experts.size(), 15u);
  for (size_t r = 0; r < 5; ++r) {
    const auto first = routing.experts.begin() + static_cast<ptrdiff_t>(3 * r);
    EXPECT_TRUE(std::is_sorted(first, first + 3));
    EXPECT_NEAR(routing.weights[3 * r] + routing.weights[3 * r + 1] + routing.weights[3 * r + 2],
                1.5f, 1e-5f);
  }
}

TEST(Moe, ForcedRoutingSpreadsRowsOrHeapsThem) {
  const MoeShape shape;
  LoadedMoe loaded(PlainMoe(shape), kRef, 1);
  const std::vector<float> h = random_floats(8 * shape.hidden, 84);
  loaded.moe().set_force(Moe::Force::balanced);
  loaded.run(h);
  std::vector<int32_t> counts(shape.experts);
  for (const int32_t e : loaded.routing().experts) ++counts[static_cast<size_t>(e)];
  EXPECT_EQ(counts, std::vector<int32_t>(8, 3));
  loaded.run(std::span(h).first(shape.hidden));
  EXPECT_EQ(loaded.routing().experts, (std::vector<int32_t>{0, 1, 2}));
  loaded.run(std::span(h).first(shape.hidden));  // rows count on
  EXPECT_EQ(loaded.routing().experts, (std::vector<int32_t>{3, 4, 5}));
  loaded.moe().set_force(Moe::Force::imbalanced);
  loaded.run(h);
  EXPECT_EQ(std::set<int32_t>(loaded.routing().experts.begin(), loaded.routing().experts.end()),
            (std::set<int32_t>{0, 1, 2}));
  loaded.moe().set_force(Moe::Force::none);
}

TEST(Moe, AnExpertThatGivesNoNumberIsNamed) {
  const MoeShape shape = {.by_id = true};
  PlainMoe plain(shape);
  std::fill(plain.by_id.begin(), plain.by_id.end(), 6);
  plain.experts[6].up[5] = std::numeric_limits<float>::infinity();
  LoadedMoe loaded(plain, kRef, 1);
  const std::vector<float> h = random_floats(3 * shape.hidden, 85);
  Result<std::vector<float>> out = loaded.try_run(h, loaded.experts());
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().kind, ErrorKind::internal);
  EXPECT_EQ(out.error().thing, "layer 4 expert 6 ffn gate and up");

  plain.experts[6].up[5] = 0.0f;
  plain.shared.down[9] = std::numeric_limits<float>::quiet_NaN();
  LoadedMoe other(plain, kRef, 1);
  out = other.try_run(h, other.experts());
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().thing, "layer 4 ffn down");

  std::vector<float> bad = h;
  bad[2] = std::numeric_limits<float>::quiet_NaN();
  out = loaded.try_run(bad, loaded.experts());
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().thing, "layer 4 router");
}

TEST(Moe, ASourceThatFailsIsNamedAndTheNextStepWorks) {
  const MoeShape shape;
  LoadedMoe loaded(PlainMoe(shape), kRef, 1);
  const std::vector<float> h = random_floats(3 * shape.hidden, 86);
  FailingSource failing;
  const Result<std::vector<float>> out = loaded.try_run(h, failing);
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().kind, ErrorKind::io);
  EXPECT_EQ(out.error().thing, "layer 4 experts");
  EXPECT_NE(out.error().what.find("model-3.safetensors: cannot read at 4096"), std::string::npos);
  loaded.run(h);
}

TEST(Moe, ATableThatNamesAMissingExpertIsRefused) {
  const MoeShape shape = {.by_id = true};
  PlainMoe plain(shape);
  plain.by_id[4] = 8;
  auto pool = value_or_die(ThreadPool::create({.threads = 1}));
  Arena arena;
  MatrixLoader loader(kRef, *pool, arena, {}, 1);
  const Result<MoeLayer> layer =
      Moe::load(plain.tensors(), plain.config(), shape.score, shape.hidden, 0, "layer 4", loader);
  ASSERT_FALSE(layer.ok());
  EXPECT_EQ(layer.error().text(), "layer 4 experts by id: names expert 8, there are 8");
}

}  // namespace
}  // namespace deepinfer::models
