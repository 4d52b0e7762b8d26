#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

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

AttentionShape shape_of(size_t heads, size_t kv_heads, size_t head_dim, KvForm form) {
  return {.heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .form = form,
          .scale = 1.0f / std::sqrt(static_cast<float>(head_dim))};
}

// A sequence of `tokens` random tokens in pages whose other slots hold NaN.
class Sequence {
 public:
  Sequence(const AttentionShape& shape, size_t tokens, unsigned seed)
      : shape_(shape), tokens_(tokens) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const size_t width = shape.kv_heads * shape.head_dim;
    for (auto* rows : {&keys_, &values_}) {
      rows->resize(tokens * width);
      for (float& x : *rows) x = normal(random);
    }
    queries_.resize(tokens * shape.heads * shape.head_dim);
    for (float& x : queries_) x = 2.0f * normal(random);
    store();
  }

  void store() {
    const size_t width = shape_.kv_heads * shape_.head_dim;
    const std::vector<float> poison(width, kNaN);
    pages_.clear();
    pointers_.clear();
    for (size_t t = 0; t < (tokens_ + kPageTokens - 1) / kPageTokens * kPageTokens; ++t) {
      if (t % kPageTokens == 0) {
        pages_.emplace_back(shape_.page_bytes());
        pointers_.push_back(pages_.back().data());
      }
      const bool used = t < tokens_;
      kv_append(shape_, pages_.back().data(), t % kPageTokens,
                used ? &keys_[t * width] : poison.data(),
                used ? &values_[t * width] : poison.data());
    }
  }

  // Rows [first, first + rows) of the queries.
  AttentionSequence rows(size_t first, size_t rows, float* out) const {
    return {.pages = pointers_.data(),
            .first_position = first,
            .rows = rows,
            .queries = queries_.data() + first * stride(),
            .out = out};
  }
  size_t stride() const { return shape_.heads * shape_.head_dim; }
  size_t tokens() const { return tokens_; }
  std::vector<float>& keys() { return keys_; }
  std::vector<float>& values() { return values_; }

 private:
  AttentionShape shape_;
  size_t tokens_;
  std::vector<float> keys_, values_;  // [tokens][kv_heads * head_dim]
  std::vector<float> queries_;        // [tokens][heads * head_dim]
  std::vector<Buffer> pages_;
  std::vector<const std::byte*> pointers_;
};

std::vector<float> run(ThreadPool& pool, Isa isa, const AttentionShape& shape,
                       const Sequence& sequence, size_t first, size_t rows) {
  std::vector<float> out(rows * sequence.stride(), kNaN);
  const AttentionSequence one[] = {sequence.rows(first, rows, out.data())};
  AttentionWorkspace workspace;
  attention(pool, isa, shape, one, sequence.stride(), sequence.stride(), workspace);
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

std::string name(const AttentionShape& s, Isa isa) {
  return std::string(isa_name(isa)) + " heads " + std::to_string(s.heads) + "/" +
         std::to_string(s.kv_heads) + " dim " + std::to_string(s.head_dim) +
         (s.form == KvForm::f32 ? " f32" : " bf16");
}

TEST(Attention, EqualsReferenceForEveryShape) {
  const auto pool = make_pool(2);
  const size_t ratios[][2] = {{3, 1}, {2, 2}, {14, 2}, {8, 1}, {5, 1}};
  for (KvForm form : {KvForm::f32, KvForm::bf16}) {
    for (size_t dim : {32, 40, 64, 72, 80, 96, 128, 256}) {
      for (const auto& ratio : ratios) {
        const AttentionShape shape = shape_of(ratio[0], ratio[1], dim, form);
        const Sequence sequence(shape, 150, static_cast<unsigned>(dim));
        const std::vector<float> expected = run(*pool, Isa::ref, shape, sequence, 0, 150);
        for (Isa isa : fast_isas()) {
          const std::vector<float> got = run(*pool, isa, shape, sequence, 0, 150);
          EXPECT_LT(largest_difference(got, expected), 1e-5f) << name(shape, isa);
        }
      }
    }
  }
}

TEST(Attention, EqualsReferenceAtSpanBorders) {
  const auto pool = make_pool(2);
  const AttentionShape shape = shape_of(6, 2, 64, KvForm::bf16);
  const Sequence sequence(shape, 1030, 7);
  for (size_t position : {0, 1, 15, 16, 126, 127, 128, 129, 510, 511, 512, 513, 1023, 1024, 1025}) {
    const std::vector<float> expected = run(*pool, Isa::ref, shape, sequence, position, 1);
    for (Isa isa : fast_isas()) {
      const std::vector<float> got = run(*pool, isa, shape, sequence, position, 1);
      EXPECT_LT(largest_difference(got, expected), 4e-6f) << name(shape, isa) << " " << position;
    }
  }
}

// The bits of a row do not depend on the chunk it came in.
TEST(Attention, ChunkedEqualsWholeEqualsOneByOne) {
  const auto pool = make_pool(2);
  for (KvForm form : {KvForm::f32, KvForm::bf16}) {
    for (size_t dim : {64, 72}) {
      const AttentionShape shape = shape_of(6, 2, dim, form);
      const Sequence sequence(shape, 1100, 11);
      for (Isa isa : fast_isas()) {
        const std::vector<float> whole = run(*pool, isa, shape, sequence, 0, 1100);
        for (size_t chunk : {1, 7, 17, 300, 512}) {
          std::vector<float> pieces;
          for (size_t first = 0; first < 1100; first += chunk) {
            const size_t rows = std::min<size_t>(chunk, 1100 - first);
            const std::vector<float> piece = run(*pool, isa, shape, sequence, first, rows);
            pieces.insert(pieces.end(), piece.begin(), piece.end());
          }
          EXPECT_TRUE(same_bits(pieces, whole)) << name(shape, isa) << " chunk " << chunk;
        }
      }
    }
  }
}

TEST(Attention, ThreadsDoNotChangeBits) {
  const auto one = make_pool(1), three = make_pool(3);
  const AttentionShape shape = shape_of(9, 3, 64, KvForm::bf16);
  const Sequence sequence(shape, 2100, 3);
  for (Isa isa : fast_isas()) {
    for (const auto& [first, rows] :
         std::vector<std::pair<size_t, size_t>>{{2099, 1}, {2080, 16}, {1000, 600}, {511, 2}}) {
      EXPECT_TRUE(same_bits(run(*one, isa, shape, sequence, first, rows),
                            run(*three, isa, shape, sequence, first, rows)))
          << name(shape, isa) << " rows " << rows;
    }
  }
}

// Alone, in company, in any order, with wider strides: the same bits, and nothing beside them
// written.
TEST(Attention, CompanyDoesNotChangeBits) {
  const auto pool = make_pool(3);
  const AttentionShape shape = shape_of(4, 2, 64, KvForm::bf16);
  const size_t lengths[] = {1, 700, 128, 1500, 33, 513};
  const size_t rows[] = {1, 1, 128, 1, 33, 100};
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < 6; ++i) sequences.emplace_back(shape, lengths[i], 20 + unsigned(i));
  const size_t stride = shape.heads * shape.head_dim;
  for (Isa isa : fast_isas()) {
    for (int reversed = 0; reversed < 2; ++reversed) {
      std::vector<std::vector<float>> outs(6);
      std::vector<AttentionSequence> batch;
      for (size_t k = 0; k < 6; ++k) {
        const size_t i = reversed ? 5 - k : k;
        outs[i].assign(rows[i] * (stride + 8), -7.0f);
        batch.push_back(sequences[i].rows(lengths[i] - rows[i], rows[i], outs[i].data()));
      }
      AttentionWorkspace workspace;
      attention(*pool, isa, shape, batch, stride, stride + 8, workspace);
      for (size_t i = 0; i < 6; ++i) {
        const auto alone = run(*pool, isa, shape, sequences[i], lengths[i] - rows[i], rows[i]);
        for (size_t r = 0; r < rows[i]; ++r) {
          const float* row = &outs[i][r * (stride + 8)];
          EXPECT_EQ(std::memcmp(row, &alone[r * stride], stride * sizeof(float)), 0)
              << name(shape, isa) << " sequence " << i << " row " << r;
          EXPECT_EQ(std::count(row + stride, row + stride + 8, -7.0f), 8);
        }
      }
    }
  }
}

// All rows see all tokens: as if each were the last.
TEST(Attention, BidirectionalRowsSeeEveryToken) {
  const auto one = make_pool(1), three = make_pool(3);
  for (KvForm form : {KvForm::f32, KvForm::bf16}) {
    for (size_t tokens : {1, 17, 72, 513, 1100}) {
      for (size_t dim : {16, 64, 72}) {
        const AttentionShape shape = shape_of(3, 3, dim, form);
        const Sequence sequence(shape, tokens, 31);
        const auto all = [&](ThreadPool& pool, Isa isa) {
          std::vector<float> out(tokens * sequence.stride(), kNaN);
          AttentionSequence rows = sequence.rows(0, tokens, out.data());
          rows.bidirectional = true;
          AttentionWorkspace workspace;
          attention(pool, isa, shape, {&rows, 1}, sequence.stride(), sequence.stride(), workspace);
          return out;
        };
        const std::vector<float> expected = all(*three, Isa::ref);
        for (Isa isa : fast_isas()) {
          const std::vector<float> got = all(*three, isa);
          EXPECT_LT(largest_difference(got, expected), 1e-5f) << name(shape, isa) << " " << tokens;
          EXPECT_TRUE(same_bits(got, all(*one, isa))) << name(shape, isa) << " " << tokens;
          const std::vector<float> last = run(*one, isa, shape, sequence, tokens - 1, 1);
          EXPECT_EQ(std::memcmp(last.data(), got.data() + (tokens - 1) * sequence.stride(),
                                last.size() * sizeof(float)),
                    0)
              << name(shape, isa) << " " << tokens;
        }
      }
    }
  }
}

TEST(Attention, WeightsRoundedToBf16) {
  const auto pool = make_pool(2);
  AttentionShape shape = shape_of(2, 1, 64, KvForm::bf16);
  const Sequence sequence(shape, 700, 5);
  const std::vector<float> exact = run(*pool, Isa::ref, shape, sequence, 600, 100);
  shape.bf16_weights = true;
  const std::vector<float> expected = run(*pool, Isa::ref, shape, sequence, 600, 100);
  EXPECT_GT(largest_difference(exact, expected), 1e-5f);
  for (Isa isa : fast_isas()) {
    const std::vector<float> got = run(*pool, isa, shape, sequence, 600, 100);
    // A weight of another span's maximum may fall on another side: half a unit of 2^-8 at most.
    EXPECT_LT(largest_difference(got, expected), 4e-3f) << isa_name(isa);
    EXPECT_GT(largest_difference(got, exact), 1e-5f) << isa_name(isa);
  }
}

TEST(Attention, EmulatedEqualsAvx512) {
  if (!cpu_features().avx512_vnni) return;
  const auto pool = make_pool(2);
  for (KvForm form : {KvForm::f32, KvForm::bf16}) {
    for (size_t dim : {40, 64, 256}) {
      const AttentionShape shape = shape_of(7, 1, dim, form);
      const Sequence sequence(shape, 650, 5);
      EXPECT_TRUE(same_bits(run(*pool, Isa::avx512, shape, sequence, 0, 650),
                            run(*pool, Isa::emulated512, shape, sequence, 0, 650)))
          << name(shape, Isa::avx512);
    }
  }
}

// A row before the NaN is untouched, rows that see it are NaN.
TEST(Attention, NanInKeyOrValueReachesEveryLaterRow) {
  const auto pool = make_pool(2);
  const AttentionShape shape = shape_of(4, 1, 64, KvForm::f32);
  const auto clean = run(*pool, Isa::ref, shape, Sequence(shape, 1100, 9), 0, 1100);
  for (bool in_key : {true, false}) {
    for (size_t at : {0, 100, 600}) {
      Sequence sequence(shape, 1100, 9);
      (in_key ? sequence.keys() : sequence.values())[at * 64 + 3] = kNaN;
      sequence.store();
      for (Isa isa : fast_isas()) {
        const auto got = run(*pool, isa, shape, sequence, 0, 1100);
        for (size_t row = 0; row < 1100; ++row) {
          const size_t first = row * 256 + 3;
          if (row < at) {
            EXPECT_LT(std::abs(got[first] - clean[first]), 4e-6f);
          } else {
            EXPECT_TRUE(std::isnan(got[first])) << name(shape, isa) << " row " << row;
          }
        }
      }
    }
  }
}

// Scores of +-1000 neither overflow nor vanish.
TEST(Attention, LargeScoresStayExact) {
  const auto pool = make_pool(1);
  AttentionShape shape = shape_of(2, 1, 64, KvForm::f32);
  shape.scale = 40.0f;
  const Sequence sequence(shape, 1030, 13);
  const auto expected = run(*pool, Isa::ref, shape, sequence, 1000, 30);
  for (Isa isa : fast_isas()) {
    const auto got = run(*pool, isa, shape, sequence, 1000, 30);
    EXPECT_LT(largest_difference(got, expected), 2e-3f) << isa_name(isa);  // scores of 1e3 in fp32
  }
}

TEST(Attention, AppendRoundsToNearestEven) {
  const AttentionShape shape = shape_of(1, 1, 8, KvForm::bf16);
  const float values[8] = {
      1.0f,   std::bit_cast<float>(0x3F808000u),     std::bit_cast<float>(0x3F818000u),
      -2.5f,  std::bit_cast<float>(0x3F808001u),     kNaN,
      1e-40f, std::numeric_limits<float>::infinity()};
  Buffer page(shape.page_bytes());
  kv_append(shape, page.data(), 5, values, values);
  for (size_t d = 0; d < 8; ++d) {
    const uint16_t key = page.as<uint16_t>()[d * kPageTokens + 5];
    const uint16_t value = page.as<uint16_t>()[8 * kPageTokens + 5 * 8 + d];
    EXPECT_EQ(key, f32_to_bf16(values[d])) << d;
    EXPECT_EQ(value, key) << d;
  }
  EXPECT_EQ(page.as<uint16_t>()[1 * kPageTokens + 5], 0x3F80);
  EXPECT_EQ(page.as<uint16_t>()[2 * kPageTokens + 5], 0x3F82);
}

}  // namespace
}  // namespace deepinfer::kernels
