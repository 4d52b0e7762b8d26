#include "kernels/attention/latent_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace deepinfer::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<Isa> fast_isas() {
  std::vector<Isa> out;
  if (cpu_features().avx2) out = {Isa::avx2, Isa::emulated512};
  if (cpu_features().avx512_vnni) out.push_back(Isa::avx512);
  return out;
}

std::unique_ptr<ThreadPool> make_pool(size_t threads) {
  return ThreadPool::create({.threads = threads}).value();
}

LatentFormat format_of(LatentCode code, size_t width, size_t rope = 0) {
  return {.code = code, .width = static_cast<uint32_t>(width), .rope = static_cast<uint32_t>(rope)};
}

LatentShape shape_of(size_t heads, size_t dim, size_t value_dim, LatentFormat window,
                     LatentFormat entries) {
  return {.heads = heads,
          .dim = dim,
          .value_dim = value_dim,
          .window = window,
          .entries = entries,
          .entries_per_page = heads == 5 ? 37u : 64u,
          .scale = 1.0f / std::sqrt(static_cast<float>(dim))};
}

// Where a query's rows come from.
struct Rows {
  size_t window = 0;  // window rows, the last at position `last`
  uint64_t last = 1000;
  size_t ring_rows = 0;  // 0: as many as the window has
  size_t fresh = 0;      // of the window rows, the last so many
  size_t entries = 0;
  size_t selected = 0;  // 0: all entries; else so many of them
};

// One query with its own rings and pages, all other bytes 0xFF: NaN or absurd in every format.
class Case {
 public:
  Case(const LatentShape& shape, const Rows& rows, unsigned seed) : shape_(shape) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& values, float size) {
      for (float& x : values) x = size * normal(random);
    };
    query_.resize(shape.heads * shape.dim);
    fill(query_, 2.0f);
    std::vector<float> values(shape.dim);
    if (rows.window > 0) {
      const size_t bytes = shape.window.row_bytes();
      const size_t ring_rows = rows.ring_rows > 0 ? rows.ring_rows : rows.window;
      ring_.assign(ring_rows * bytes, std::byte{0xFF});
      fresh_.assign((rows.fresh + 1) * bytes, std::byte{0xFF});
      view_.window_end = rows.last + 1;
      view_.window_first = view_.window_end - rows.window;
      view_.fresh_first = view_.window_end - rows.fresh;
      for (uint64_t p = view_.window_first; p < view_.window_end; ++p) {
        fill(values, 1.0f);
        std::byte* row = p >= view_.fresh_first ? &fresh_[(p - view_.fresh_first) * bytes]
                                                : &ring_[p % ring_rows * bytes];
        latent_row_ops(Isa::ref).encode(shape.window, values.data(), row);
      }
      view_.ring = ring_.data();
      view_.ring_rows = ring_rows;
      if (rows.fresh > 0) view_.fresh = fresh_.data();
    }
    if (rows.entries > 0)
      add_entries(rows, random, [&] {
        fill(values, 1.5f);
        return values;
      });
    view_.query = query_.data();
  }

  LatentQuery view(float* out) const {
    LatentQuery view = view_;
    view.out = out;
    return view;
  }
  std::byte* entry(size_t j) {
    return pages_[j / shape_.entries_per_page].data() +
           j % shape_.entries_per_page * shape_.entries.row_bytes();
  }
  size_t floats() const { return shape_.heads * shape_.value_dim; }

 private:
  template <class Next>
  void add_entries(const Rows& rows, std::mt19937& random, Next next) {
    const size_t per_page = shape_.entries_per_page, bytes = shape_.entries.row_bytes();
    for (size_t j = 0; j < rows.entries; ++j) {
      if (j % per_page == 0) pages_.emplace_back(per_page * bytes, std::byte{0xFF});
      latent_row_ops(Isa::ref).encode(shape_.entries, next().data(), entry(j));
    }
    for (const auto& page : pages_) pointers_.push_back(page.data());
    view_.pages = pointers_.data();
    view_.entry_count = rows.entries;
    if (rows.selected == 0) return;
    for (uint32_t j = 0; j < rows.entries; ++j) selected_.push_back(j);
    std::shuffle(selected_.begin(), selected_.end(), random);
    selected_.resize(rows.selected);
    std::sort(selected_.begin(), selected_.end());
    view_.selected = selected_.data();
    view_.entry_count = rows.selected;
  }

  LatentShape shape_;
  std::vector<float> query_;  // [heads][dim]
  std::vector<std::byte> ring_, fresh_;
  std::vector<std::vector<std::byte>> pages_;
  std::vector<const std::byte*> pointers_;
  std::vector<uint32_t> selected_;
  LatentQuery view_;
};

std::vector<float> run(ThreadPool& pool, Isa isa, const LatentShape& shape, const Case& one) {
  std::vector<float> out(one.floats() + 16, -7.0f);
  const LatentQuery queries[] = {one.view(out.data())};
  AttentionWorkspace workspace;
  latent_attention(pool, isa, shape, queries, workspace);
  for (size_t i = one.floats(); i < out.size(); ++i) EXPECT_EQ(out[i], -7.0f);
  out.resize(one.floats());
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0.0f;
  for (size_t i = 0; i < a.size(); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;  // NaN is the largest
    if (std::isnan(largest)) break;
  }
  return largest;
}

std::string name(const LatentShape& s, const Rows& rows, Isa isa) {
  return std::string(isa_name(isa)) + " heads " + std::to_string(s.heads) + " dim " +
         std::to_string(s.dim) + "/" + std::to_string(s.value_dim) + " window " +
         std::to_string(rows.window) + " entries " + std::to_string(rows.entries) + " formats " +
         std::to_string(static_cast<int>(s.window.code)) + "/" +
         std::to_string(static_cast<int>(s.entries.code));
}

// The shapes of the families, and odd ones.
std::vector<LatentShape> shapes() {
  using enum LatentCode;
  const auto mixed = [](size_t dim, size_t rope) { return format_of(v4, dim, rope); };
  return {
      shape_of(64, 512, 512, format_of(q8, 512), format_of(q4e, 512)),      // V4.1
      shape_of(64, 512, 512, mixed(512, 64), mixed(512, 64)),               // V4
      shape_of(128, 576, 512, format_of(bf16, 576), format_of(bf16, 576)),  // V3
      shape_of(64, 512, 512, format_of(f32, 512), format_of(f32, 512)),
      shape_of(4, 64, 64, format_of(q8, 64), format_of(q4e, 64)),  // the tiny models
      shape_of(6, 96, 96, format_of(q8, 96), format_of(q4u, 96)),
      shape_of(4, 64, 64, mixed(64, 32), mixed(64, 32)),
      shape_of(1, 8, 8, format_of(f32, 8), format_of(bf16, 8)),
      shape_of(2, 40, 24, format_of(bf16, 40), format_of(f32, 40)),
      shape_of(3, 72, 64, mixed(72, 8), format_of(bf16, 72)),
      shape_of(5, 24, 24, mixed(24, 8), mixed(24, 2)),
      shape_of(17, 208, 200, format_of(q4e, 208), mixed(208, 14)),
      shape_of(33, 64, 8, format_of(q4u, 64), format_of(q8, 64)),
      shape_of(70, 128, 120, format_of(f32, 128), format_of(q8, 128)),
  };
}

const std::vector<Rows>& row_sources() {
  static const std::vector<Rows> sources = {
      {.window = 1, .last = 0},
      {.window = 5, .last = 4, .fresh = 5},
      {.window = 128, .last = 1000, .ring_rows = 134},
      {.window = 128, .last = 1000, .ring_rows = 134, .fresh = 7, .entries = 64},
      {.window = 60, .last = 59, .ring_rows = 134, .entries = 200, .selected = 77},
      {.entries = 97},
      {.window = 128, .last = 5000, .ring_rows = 128, .fresh = 1, .entries = 600, .selected = 512},
  };
  return sources;
}

TEST(LatentAttention, EqualsReferenceForEveryShape) {
  const auto pool = make_pool(2);
  const std::vector<float> sink = {-0.5f, 1.0f, 0.0f, 3.0f, -2.0f, 0.25f};
  for (LatentShape shape : shapes()) {
    std::vector<float> sinks(shape.heads);
    for (size_t h = 0; h < shape.heads; ++h) sinks[h] = sink[h % sink.size()];
    for (size_t i = 0; i < row_sources().size(); ++i) {
      shape.sink = i % 2 == 0 ? sinks.data() : nullptr;
      const Rows& rows = row_sources()[i];
      const Case one(shape, rows, 7 + unsigned(i));
      const auto expected = run(*pool, Isa::ref, shape, one);
      for (Isa isa : fast_isas()) {
        EXPECT_LT(largest_difference(run(*pool, isa, shape, one), expected), 2e-5f)
            << name(shape, rows, isa);
      }
    }
  }
}

// Lists of several spans, their ends included.
TEST(LatentAttention, EqualsReferenceOverManySpans) {
  const auto pool = make_pool(2);
  LatentShape shape =
      shape_of(3, 64, 48, format_of(LatentCode::q8, 64), format_of(LatentCode::bf16, 64));
  const std::vector<float> sinks = {1.0f, -1.0f, 4.0f};
  shape.sink = sinks.data();
  for (size_t rows : {kLatentSpan - 1, kLatentSpan, kLatentSpan + 1, 3 * kLatentSpan + 97}) {
    const Rows source = {.window = 100, .fresh = 3, .entries = rows - 100};
    const Case one(shape, source, 11);
    const auto expected = run(*pool, Isa::ref, shape, one);
    for (Isa isa : fast_isas()) {
      EXPECT_LT(largest_difference(run(*pool, isa, shape, one), expected), 1e-5f)
          << name(shape, source, isa);
    }
  }
}

// exp(a - M) rounded to bf16 before the product, the sum not: within a list of one span that is
// what ref does, but where a weight lies on the edge of two codes.
TEST(LatentAttention, FaithfulRoundsTheWeights) {
  const auto pool = make_pool(2);
  LatentShape shape =
      shape_of(4, 64, 64, format_of(LatentCode::f32, 64), format_of(LatentCode::f32, 64));
  const Rows rows = {.window = 30, .entries = 40};
  const Case one(shape, rows, 5);
  const auto plain = run(*pool, Isa::ref, shape, one);
  shape.faithful = true;
  const auto expected = run(*pool, Isa::ref, shape, one);
  EXPECT_GT(largest_difference(plain, expected), 1e-4f);
  for (Isa isa : fast_isas()) {
    EXPECT_LT(largest_difference(run(*pool, isa, shape, one), expected), 1e-5f) << isa_name(isa);
  }
}

TEST(LatentAttention, NoVisibleKeyGivesZero) {
  const auto pool = make_pool(2);
  LatentShape shape = shape_of(5, 64, 40, format_of(LatentCode::q8, 64), {});
  const std::vector<float> sinks(5, 100.0f);
  std::vector<Isa> isas = fast_isas();
  isas.push_back(Isa::ref);
  for (Isa isa : isas) {
    for (const float* sink : {static_cast<const float*>(nullptr), sinks.data()}) {
      shape.sink = sink;
      const Case empty(shape, {}, 1), other(shape, {.window = 3}, 2);
      std::vector<float> out(empty.floats(), kNaN), beside(other.floats(), kNaN);
      const LatentQuery queries[] = {empty.view(out.data()), other.view(beside.data())};
      AttentionWorkspace workspace;
      latent_attention(*pool, isa, shape, queries, workspace);
      EXPECT_EQ(std::count(out.begin(), out.end(), 0.0f), 200) << isa_name(isa);
      EXPECT_TRUE(same_bits(beside, run(*pool, isa, shape, other))) << isa_name(isa);
    }
  }
}

// A sink far above the scores takes all the weight, one far below none; neither overflows.
TEST(LatentAttention, SinksOfAnySize) {
  const auto pool = make_pool(2);
  LatentShape shape = shape_of(2, 32, 32, format_of(LatentCode::f32, 32), {});
  const Case one(shape, {.window = 9}, 3);
  for (Isa isa : fast_isas()) {
    const auto without = run(*pool, isa, shape, one);
    std::vector<float> sinks = {-1000.0f, 1000.0f};
    shape.sink = sinks.data();
    const auto with = run(*pool, isa, shape, one);
    for (size_t d = 0; d < 32; ++d) {
      EXPECT_EQ(with[d], without[d]);
      EXPECT_EQ(with[32 + d], 0.0f);
    }
    shape.sink = nullptr;
  }
}

TEST(LatentAttention, ScoresOfAnySizeStayFinite) {
  const auto pool = make_pool(2);
  LatentShape shape = shape_of(3, 64, 64, {}, format_of(LatentCode::f32, 64));
  shape.scale = 40.0f;
  const Case one(shape, {.entries = kLatentSpan + 200}, 13);
  const auto expected = run(*pool, Isa::ref, shape, one);
  for (Isa isa : fast_isas()) {
    EXPECT_LT(largest_difference(run(*pool, isa, shape, one), expected), 4e-3f) << isa_name(isa);
  }
}

// All sets, thread counts and ways to cut the work give the same bits.
TEST(LatentAttention, InstructionSetsAndThreadsGiveTheSameBits) {
  std::vector<std::unique_ptr<ThreadPool>> pools;
  for (size_t threads : {1, 2, 3, 5}) pools.push_back(make_pool(threads));
  const std::vector<Rows> sources = {{.window = 128, .fresh = 1, .entries = 600, .selected = 512},
                                     {.window = 3},
                                     {.window = 128, .entries = 2 * kLatentSpan + 5}};
  LatentShape faithful = shapes()[0];
  faithful.faithful = true;
  for (const LatentShape& shape :
       {shapes()[0], faithful, shapes()[2], shapes()[4], shapes()[9], shapes()[11]}) {
    for (const Rows& rows : sources) {
      const Case one(shape, rows, 17);
      const auto expected = run(*pools[0], fast_isas()[0], shape, one);
      for (Isa isa : fast_isas()) {
        for (const auto& pool : pools) {
          EXPECT_TRUE(same_bits(run(*pool, isa, shape, one), expected))
              << name(shape, rows, isa) << " threads " << pool->thread_count();
        }
      }
    }
  }
}

// Alone, in company, in any order: the same bits.
TEST(LatentAttention, CompanyDoesNotChangeBits) {
  const LatentShape shape =
      shape_of(66, 64, 64, format_of(LatentCode::q8, 64), format_of(LatentCode::q4e, 64));
  const std::vector<Rows> sources = {{.window = 128, .fresh = 1, .entries = 600, .selected = 512},
                                     {.window = 1},
                                     {.window = 128, .entries = kLatentSpan + 5},
                                     {.entries = 3},
                                     {},
                                     {.window = 40, .last = 39, .fresh = 40},
                                     {.entries = 3 * kLatentSpan}};
  std::vector<Case> cases;
  for (size_t i = 0; i < sources.size(); ++i)
    cases.emplace_back(shape, sources[i], 40 + unsigned(i));
  for (Isa isa : fast_isas()) {
    for (size_t threads : {1, 3}) {
      const auto pool = make_pool(threads);
      for (bool reversed : {false, true}) {
        std::vector<std::vector<float>> outs(cases.size());
        std::vector<LatentQuery> queries;
        for (size_t k = 0; k < 4 * cases.size(); ++k) {
          const size_t i = (reversed ? 4 * cases.size() - 1 - k : k) % cases.size();
          if (!outs[i].empty()) continue;
          outs[i].assign(cases[i].floats(), kNaN);
          queries.push_back(cases[i].view(outs[i].data()));
        }
        AttentionWorkspace workspace;
        latent_attention(*pool, isa, shape, queries, workspace);
        for (size_t i = 0; i < cases.size(); ++i) {
          EXPECT_TRUE(same_bits(outs[i], run(*pool, isa, shape, cases[i])))
              << isa_name(isa) << " case " << i << " threads " << threads;
        }
      }
    }
  }
}

// A list in a ring, in fresh rows or in both: the same rows, the same bits.
TEST(LatentAttention, PlaceOfWindowRowsDoesNotChangeBits) {
  const auto pool = make_pool(2);
  const LatentShape shape = shape_of(4, 64, 64, format_of(LatentCode::q8, 64), {});
  for (Isa isa : fast_isas()) {
    const Rows at_once = {.window = 20, .last = 500};
    const auto expected = run(*pool, isa, shape, Case(shape, at_once, 3));
    for (size_t fresh : {1, 7, 20}) {
      for (size_t ring_rows : {20, 23, 26, 64}) {
        const Rows rows = {.window = 20, .last = 500, .ring_rows = ring_rows, .fresh = fresh};
        EXPECT_TRUE(same_bits(run(*pool, isa, shape, Case(shape, rows, 3)), expected))
            << isa_name(isa) << " fresh " << fresh << " ring " << ring_rows;
      }
    }
  }
}

// A NaN in a visible row reaches every result, in a row that is not selected none.
TEST(LatentAttention, NanReachesWhoSeesIt) {
  const auto pool = make_pool(2);
  const LatentShape shape = shape_of(4, 64, 64, {}, format_of(LatentCode::f32, 64));
  Case one(shape, {.entries = 90, .selected = 50}, 23);
  const LatentQuery view = one.view(nullptr);
  const std::vector<uint32_t> selected(view.selected, view.selected + view.entry_count);
  const auto clean = run(*pool, fast_isas()[0], shape, one);
  for (uint32_t entry : {0u, 17u, 45u, 88u, 89u}) {
    const bool seen = std::binary_search(selected.begin(), selected.end(), entry);
    float* value = reinterpret_cast<float*>(one.entry(entry)) + 9;
    const float kept = *value;
    *value = kNaN;
    for (Isa isa : fast_isas()) {
      const auto got = run(*pool, isa, shape, one);
      const auto bad = std::count_if(got.begin(), got.end(), [](float x) { return std::isnan(x); });
      EXPECT_EQ(bad, seen ? 256 : 0) << isa_name(isa) << " entry " << entry;
      if (!seen) {
        EXPECT_TRUE(same_bits(got, clean));
      }
    }
    *value = kept;
  }
}

}  // namespace
}  // namespace deepinfer::kernels
