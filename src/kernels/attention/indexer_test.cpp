#include "kernels/attention/indexer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tensor/dtype.h"

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

std::unique_ptr<ThreadPool> pool_of(size_t threads) {
  return ThreadPool::create({.threads = threads}).value();
}

// Keys in pages of exactly their rows' bytes, and queries that q4u represents.
struct Case {
  IndexShape shape;
  size_t entries;
  size_t queries;
  std::vector<std::vector<std::byte>> pages;
  std::vector<const std::byte*> page_list;
  std::vector<float> query, weights;  // [queries][heads][width], [queries][heads]
  std::mt19937 random{7};

  Case(LatentCode code, size_t heads, uint32_t width, size_t per_page, size_t entry_count,
       size_t query_count)
      : shape{.heads = heads,
              .keys = {.code = code, .width = width, .rope = 0},
              .entries_per_page = per_page},
        entries(entry_count),
        queries(query_count) {
    for (size_t first = 0; first < entries; first += per_page) {
      std::vector<std::byte> page;
      for (size_t e = first; e < std::min(entries, first + per_page); ++e) append_key(page);
      pages.push_back(std::move(page));
    }
    for (const auto& page : pages) page_list.push_back(page.data());
    std::normal_distribution<float> normal;
    for (size_t b = 0; b < queries * heads; ++b) weights.push_back(normal(random));
    query.resize(queries * heads * width);
    for (size_t i = 0; i < query.size(); ++i) {
      query[i] = code == LatentCode::q4u
                     ? e2m1_to_f32(random() & 15u) * std::ldexp(1.0f, static_cast<int>(i / 32 % 7))
                     : normal(random);
    }
  }

  void append_key(std::vector<std::byte>& page) {
    const uint32_t width = shape.keys.width;
    const size_t at = page.size();
    page.resize(at + shape.keys.row_bytes());
    std::byte* row = page.data() + at;
    std::normal_distribution<float> normal;
    for (uint32_t i = 0; i < width; ++i) {
      const float value = normal(random);
      const uint16_t half = f32_to_bf16(value);
      if (shape.keys.code == LatentCode::f32) std::memcpy(row + i * 4, &value, 4);
      if (shape.keys.code == LatentCode::bf16) std::memcpy(row + i * 2, &half, 2);
    }
    if (shape.keys.code != LatentCode::q4u) return;
    for (uint32_t i = 0; i < width / 2; ++i) row[i] = static_cast<std::byte>(random());
    for (uint32_t b = 0; b < width / 32; ++b) {
      row[width / 2 + b] = static_cast<std::byte>(120 + random() % 12);
    }
  }

  std::byte* row(size_t entry) {
    return pages[entry / shape.entries_per_page].data() +
           entry % shape.entries_per_page * shape.keys.row_bytes();
  }

  double key(size_t entry, size_t i) {
    const std::byte* at = row(entry);
    const uint32_t width = shape.keys.width;
    if (shape.keys.code == LatentCode::f32) {
      float value;
      std::memcpy(&value, at + i * 4, 4);
      return double{value};
    }
    if (shape.keys.code == LatentCode::bf16) {
      uint16_t value;
      std::memcpy(&value, at + i * 2, 2);
      return double{bf16_to_f32(value)};
    }
    const auto pair = std::to_integer<uint8_t>(at[i / 2]);
    const float code = e2m1_to_f32(i % 2 == 0 ? pair & 15u : pair >> 4);
    return double{code} * std::exp2(std::to_integer<int>(at[width / 2 + i / 32]) - 127);
  }

  // The score, and the sum of the magnitudes that its error is measured by.
  std::pair<double, double> expected(size_t q, size_t entry) {
    double score = 0.0, size = 0.0;
    for (size_t h = 0; h < shape.heads; ++h) {
      double dot = 0.0, magnitude = 0.0;
      for (size_t i = 0; i < shape.keys.width; ++i) {
        const double product =
            double{query[(q * shape.heads + h) * shape.keys.width + i]} * key(entry, i);
        dot += product;
        magnitude += std::abs(product);
      }
      const double weight = double{weights[q * shape.heads + h]};
      score += weight * std::max(dot, 0.0);
      size += std::abs(weight) * magnitude;
    }
    return {score, size};
  }

  // [queries][entries]; query q sees entries - q of them, the others stay -77.
  std::vector<float> scores(Isa isa, size_t threads, size_t first = 0, size_t count = ~size_t{0}) {
    std::vector<float> out(queries * entries, -77.0f);
    std::vector<IndexQuery> list;
    for (size_t q = first; q < std::min(queries, first + std::min(count, queries)); ++q) {
      list.push_back({.query = query.data() + q * shape.heads * shape.keys.width,
                      .weights = weights.data() + q * shape.heads,
                      .pages = page_list.data(),
                      .visible = entries - std::min(q, entries),
                      .scores = out.data() + q * entries});
    }
    index_scores(*pool_of(threads), isa, shape, list);
    return out;
  }
};

std::string describe(Isa isa, const Case& c) {
  return std::string(isa_name(isa)) + " code " +
         std::to_string(static_cast<int>(c.shape.keys.code)) + " heads " +
         std::to_string(c.shape.heads) + " width " + std::to_string(c.shape.keys.width) +
         " entries " + std::to_string(c.entries);
}

void expect_scores(Case& c) {
  const std::vector<float> plain = c.scores(Isa::ref, 1);
  for (size_t q = 0; q < c.queries; ++q) {
    for (size_t e = 0; e < c.entries; ++e) {
      const float got = plain[q * c.entries + e];
      if (e + q >= c.entries) {
        EXPECT_EQ(got, -77.0f) << "an entry that is not visible";
        continue;
      }
      const auto [score, size] = c.expected(q, e);
      EXPECT_NEAR(got, score, size * 1e-6) << describe(Isa::ref, c) << " entry " << e;
    }
  }
  for (Isa isa : all_isas()) {
    const std::vector<float> got = c.scores(isa, 2);
    EXPECT_EQ(std::memcmp(got.data(), plain.data(), got.size() * sizeof(float)), 0)
        << describe(isa, c);
  }
}

TEST(IndexScores, Q4uOfOddShapes) {
  for (size_t heads : {1, 2, 3, 8, 33}) {
    for (uint32_t width : {32, 64, 96, 128, 160, 256}) {
      for (size_t entries : {1, 17, 40}) {
        Case c(LatentCode::q4u, heads, width, 7, entries, 2);
        expect_scores(c);
      }
    }
  }
}

TEST(IndexScores, Bf16AndF32OfOddShapes) {
  for (size_t heads : {1, 4, 9, 17}) {
    for (uint32_t width : {2, 6, 16, 32, 64, 98, 128}) {
      for (size_t entries : {1, 16, 45}) {
        Case half(LatentCode::bf16, heads, width, 32, entries, 2);
        expect_scores(half);
        Case full(LatentCode::f32, heads, width + 1, 5, entries, 2);
        expect_scores(full);
        Case even(LatentCode::f32, heads, width, 64, entries, 1);
        expect_scores(even);
      }
    }
  }
}

TEST(IndexScores, RealShapes) {
  Case v41(LatentCode::q4u, 32, 128, 128, 301, 3);
  expect_scores(v41);
  Case v4(LatentCode::q4u, 64, 128, 32, 77, 2);
  expect_scores(v4);
}

TEST(IndexScores, NoEntriesAndNoQueries) {
  Case c(LatentCode::q4u, 2, 32, 4, 1, 2);  // query 1 sees none
  EXPECT_EQ(c.scores(Isa::ref, 1)[1], -77.0f);
  for (Isa isa : all_isas()) {
    EXPECT_EQ(c.scores(isa, 2)[1], -77.0f);
    index_scores(*pool_of(2), isa, c.shape, {});
  }
}

TEST(IndexScores, AQueryHasItsBitsAloneInABatchAndOnAnyThreads) {
  for (LatentCode code : {LatentCode::q4u, LatentCode::f32}) {
    Case c(code, 8, 64, 32, 700, 5);
    for (Isa isa : all_isas()) {
      const std::vector<float> batch = c.scores(isa, 1);
      EXPECT_EQ(c.scores(isa, 3), batch) << describe(isa, c);
      for (size_t q = 0; q < c.queries; ++q) {
        const std::vector<float> alone = c.scores(isa, 2, q, 1);
        EXPECT_TRUE(std::equal(alone.begin() + static_cast<ptrdiff_t>(q * c.entries),
                               alone.begin() + static_cast<ptrdiff_t>((q + 1) * c.entries),
                               batch.begin() + static_cast<ptrdiff_t>(q * c.entries)))
            << describe(isa, c) << " query " << q;
      }
    }
  }
}

TEST(IndexScores, NanOfAKeyIsSeenInItsScoreAlone) {
  Case q4u(LatentCode::q4u, 3, 64, 8, 40, 1);
  q4u.row(21)[33] = std::byte{255};
  Case f32(LatentCode::f32, 3, 24, 8, 40, 1);
  std::memcpy(f32.row(21) + 12, &kNaN, 4);
  for (Isa isa : all_isas()) {
    for (Case* c : {&q4u, &f32}) {
      const std::vector<float> scores = c->scores(isa, 1);
      for (size_t e = 0; e < 40; ++e) EXPECT_EQ(std::isnan(scores[e]), e == 21) << isa_name(isa);
    }
  }
}

TEST(IndexScores, NanOfAQueryIsSeen) {
  Case c(LatentCode::q4u, 3, 64, 8, 5, 2);
  c.query[70] = kNaN;
  for (Isa isa : all_isas()) {
    const std::vector<float> scores = c.scores(isa, 1);
    EXPECT_TRUE(std::isnan(scores[0])) << isa_name(isa);
    EXPECT_FALSE(std::isnan(scores[5])) << isa_name(isa);
  }
}

// ------------------------------------------------------------------------- selection

// By sorting: score descending, NaN last, index ascending.
std::vector<uint32_t> sorted_top(const std::vector<float>& scores, std::vector<uint32_t> from,
                                 size_t k) {
  std::sort(from.begin(), from.end(), [&](uint32_t a, uint32_t b) {
    if (std::isnan(scores[a]) || std::isnan(scores[b])) {
      if (std::isnan(scores[a]) && std::isnan(scores[b])) return a < b;
      return std::isnan(scores[b]);
    }
    return scores[a] > scores[b] || (!(scores[a] < scores[b]) && a < b);
  });
  from.resize(std::min(k, from.size()));
  std::sort(from.begin(), from.end());
  return from;
}

std::vector<uint32_t> all_of(size_t count) {
  std::vector<uint32_t> out(count);
  std::iota(out.begin(), out.end(), 0u);
  return out;
}

std::vector<uint32_t> top(const std::vector<float>& scores, size_t k) {
  std::vector<uint32_t> out(std::min(k, scores.size()) + 1, 0xDEADu);
  out.resize(select_top(scores.data(), scores.size(), k, out.data()));
  return out;
}

// Scores of several kinds: distinct, many ties, rising, falling, with NaN and both infinities.
std::vector<float> scores_of(size_t n, int kind, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 10.0f);
  std::vector<float> out(n);
  for (size_t i = 0; i < n; ++i) {
    const float value = normal(random);
    const float specials[] = {kNaN, kInfinity, -kInfinity, 0.0f, -0.0f, 1e-45f, -1e-45f, value};
    const float kinds[] = {value,
                           std::floor(value / 5.0f),
                           static_cast<float>(i),
                           -static_cast<float>(i),
                           specials[random() % 8],
                           1.5f,
                           i % 3 == 0 ? 0.0f : -0.0f,
                           kNaN,
                           random() % 50 == 0 ? value : kNaN};
    out[i] = kinds[kind];
  }
  return out;
}
constexpr int kKinds = 9;

TEST(SelectTop, EqualsSortingWithItsTies) {
  for (int kind = 0; kind < kKinds; ++kind) {
    for (size_t n : {1, 2, 63, 64, 65, 500, 2000, 9000}) {
      const std::vector<float> scores = scores_of(n, kind, static_cast<unsigned>(n));
      for (size_t k : {1, 2, 7, 64, 512, 2048}) {
        EXPECT_EQ(top(scores, k), sorted_top(scores, all_of(n), k))
            << "kind " << kind << " n " << n << " k " << k;
      }
    }
  }
}

TEST(SelectTop, NothingWanted) {
  uint32_t out = 7;
  const float score = 1.0f;
  EXPECT_EQ(select_top(&score, 1, 0, &out), 0u);
  EXPECT_EQ(select_top(&score, 0, 5, &out), 0u);
  EXPECT_EQ(out, 7u);
}

TEST(SelectBlocks, BestBlocksAndTheNewest) {
  const std::vector<float> scores = {1, 9, 3, 3, 8, 0, 2, 2, 7, -5};  // blocks of 2: 9 3 8 2 7
  uint32_t out[8];
  const auto blocks = [&](size_t visible, size_t count) {
    const size_t got = select_blocks(scores.data(), visible, 2, count, out);
    return std::vector<uint32_t>(out, out + got);
  };
  EXPECT_EQ(blocks(10, 2), (std::vector<uint32_t>{0, 4}));
  EXPECT_EQ(blocks(8, 2), (std::vector<uint32_t>{0, 3}));
  EXPECT_EQ(blocks(8, 3), (std::vector<uint32_t>{0, 2, 3}));
  EXPECT_EQ(blocks(9, 3), (std::vector<uint32_t>{0, 2, 4}));
  EXPECT_EQ(blocks(10, 5), (std::vector<uint32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(blocks(3, 5), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(blocks(0, 5), (std::vector<uint32_t>{}));
}

TEST(SelectBlocks, CappedScoresTieAndTheNewestStandsAbove) {
  // Infinity is capped, so that block 0 ties with the finite but larger than bf16 block 1.
  const std::vector<float> scores = {3.4e38f, kInfinity, 3.39e38f, kNaN, 1, 2};
  uint32_t out[3];
  ASSERT_EQ(select_blocks(scores.data(), 6, 1, 3, out), 3u);
  EXPECT_EQ(std::vector<uint32_t>(out, out + 3), (std::vector<uint32_t>{0, 1, 5}));
  ASSERT_EQ(select_blocks(scores.data(), 6, 1, 2, out), 2u);
  EXPECT_EQ(std::vector<uint32_t>(out, out + 2), (std::vector<uint32_t>{0, 5}));
}

TEST(SelectTopInBlocks, EqualsSortingTheCandidates) {
  for (int kind = 0; kind < kKinds; ++kind) {
    for (size_t visible : {1, 30, 700, 5000}) {
      const std::vector<float> scores = scores_of(visible, kind, 3);
      for (size_t block : {1, 8, 100}) {
        std::vector<uint32_t> candidates, members;
        for (uint32_t b = 0; b * block < visible + block; b += 2) {
          candidates.push_back(b);
          for (size_t e = b * block; e < std::min(visible, (b + 1) * block); ++e) {
            members.push_back(static_cast<uint32_t>(e));
          }
        }
        for (size_t k : {1, 9, 512}) {
          std::vector<uint32_t> out(k);
          out.resize(
              select_top_in_blocks(scores.data(), visible, k, block, candidates, out.data()));
          EXPECT_EQ(out, sorted_top(scores, members, k))
              << "kind " << kind << " visible " << visible << " block " << block << " k " << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::kernels
