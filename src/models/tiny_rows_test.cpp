// A row's bits depend on its own sequence only: not on chunks, company, threads or what is wanted.

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string>
#include <tuple>

#include "models/model_runner.h"

namespace deepinfer::models {
namespace {

std::vector<int32_t> random_ids(size_t count, uint32_t seed, size_t vocab = 512) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % vocab);
  return ids;
}

// The last row of [rows][vocab].
std::vector<float> last_row(const std::vector<float>& logits, size_t vocab) {
  return {logits.end() - static_cast<std::ptrdiff_t>(vocab), logits.end()};
}

using Case = std::tuple<std::string, kernels::Isa>;

class Rows : public ::testing::TestWithParam<Case> {
 protected:
  ModelRunner open(size_t threads = 1, KvMode kv = KvMode::official) const {
    const auto& [name, isa] = GetParam();
    return ModelRunner::open(
        tiny_model_path(name),
        {.isa = isa, .kv = kv, .threads = threads, .max_rows = 320, .pages = 32});
  }
};

// 300 tokens reach into the third page.
TEST_P(Rows, AnyChunkingGivesTheSameBits) {
  ModelRunner runner = open();
  const std::vector<int32_t> ids = random_ids(300, 1);
  const std::vector<float> whole = runner.logits(ids, ids.size());
  for (size_t chunk : {1, 7, 64, 128, 131}) {
    EXPECT_TRUE(runner.logits(ids, chunk) == whole) << "chunks of " << chunk;
  }
}

TEST_P(Rows, CompanyAndOrderDoNotMatter) {
  ModelRunner runner = open();
  const std::vector<size_t> lengths = {1, 140, 5, 33, 2, 128, 3};
  std::vector<std::vector<float>> alone;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto ids = random_ids(lengths[i], static_cast<uint32_t>(i));
    alone.push_back(last_row(runner.logits(ids, ids.size()), runner.vocab()));
  }
  std::vector<size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 random(5);
  for (int round = 0; round < 3; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    std::vector<cache::SequenceCache> caches;
    for (size_t i = 0; i < lengths.size(); ++i) caches.push_back(runner.new_sequence());
    std::vector<ModelRunner::Feed> feeds;
    for (size_t i : order) {
      feeds.push_back({&caches[i], random_ids(lengths[i], static_cast<uint32_t>(i)), false});
    }
    const std::vector<float> together = runner.step(feeds);
    for (size_t place = 0; place < order.size(); ++place) {
      const auto begin = together.begin() + static_cast<std::ptrdiff_t>(place * runner.vocab());
      EXPECT_TRUE(std::equal(begin, begin + static_cast<std::ptrdiff_t>(runner.vocab()),
                             alone[order[place]].begin()))
          << "sequence of " << lengths[order[place]] << " at place " << place;
    }
  }
}

TEST_P(Rows, ThreadsDoNotMatter) {
  const std::vector<int32_t> ids = random_ids(300, 2);
  const std::vector<float> one = open(1).logits(ids, ids.size());
  EXPECT_TRUE(open(3).logits(ids, ids.size()) == one);
  EXPECT_TRUE(open(2).logits(ids, 50) == one);
}

TEST_P(Rows, UnwantedRowsLeaveTheWantedOnesAlone) {
  ModelRunner runner = open();
  const std::vector<int32_t> ids = random_ids(150, 3);
  const std::vector<float> all = runner.logits(ids, ids.size());
  cache::SequenceCache sequence = runner.new_sequence();
  ASSERT_TRUE(sequence.reserve(ids.size()).ok());
  std::vector<uint64_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), uint64_t{0});
  std::vector<uint8_t> want(ids.size(), 0);
  for (size_t row : {3, 4, 5, 90, 149}) want[row] = 1;
  const std::vector<uint32_t> row_start = {0, static_cast<uint32_t>(ids.size())};
  const std::vector<cache::SequenceCache*> caches = {&sequence};
  StepOutput output;
  ASSERT_TRUE(runner.model().forward({ids, positions, row_start, want, caches}, output).ok());
  ASSERT_EQ(output.wanted_rows, 5u);
  size_t wanted = 0;
  for (size_t row : {3, 4, 5, 90, 149}) {
    const float* expected = all.data() + row * runner.vocab();
    EXPECT_TRUE(std::equal(expected, expected + runner.vocab(), output.row(wanted, runner.vocab())))
        << "row " << row;
    ++wanted;
  }
}

// The cache of a prompt that nobody asked logits of serves the rows after it.
TEST_P(Rows, StepsWithoutLogitsFillTheCache) {
  ModelRunner runner = open();
  const std::vector<int32_t> ids = random_ids(40, 4);
  const std::vector<float> expected = last_row(runner.logits(ids, ids.size()), runner.vocab());
  cache::SequenceCache sequence = runner.new_sequence();
  ASSERT_TRUE(sequence.reserve(ids.size()).ok());
  std::vector<uint64_t> positions(39);
  std::iota(positions.begin(), positions.end(), uint64_t{0});
  const std::vector<uint8_t> want(39, 0);
  const std::vector<uint32_t> row_start = {0, 39};
  const std::vector<cache::SequenceCache*> caches = {&sequence};
  StepOutput output;
  const StepBatch batch = {std::span(ids).first(39), positions, row_start, want, caches};
  ASSERT_TRUE(runner.model().forward(batch, output).ok());
  EXPECT_EQ(output.wanted_rows, 0u);
  sequence.set_length(39);
  EXPECT_TRUE(runner.step({{&sequence, {ids[39]}}}) == expected);
}

// Rows rejected after the fact: the cache goes back and other rows take their positions.
TEST_P(Rows, ForgottenRowsAreRewritten) {
  ModelRunner runner = open();
  const std::vector<int32_t> ids = random_ids(140, 6);
  const std::vector<float> expected = last_row(runner.logits(ids, ids.size()), runner.vocab());
  cache::SequenceCache sequence = runner.new_sequence();
  runner.step({{&sequence, {ids.begin(), ids.begin() + 120}}});
  runner.step({{&sequence, random_ids(30, 7)}});
  sequence.set_length(120);
  EXPECT_TRUE(last_row(runner.step({{&sequence, {ids.begin() + 120, ids.end()}}}),
                       runner.vocab()) == expected);
}

INSTANTIATE_TEST_SUITE_P(AllIsas, Rows,
                         ::testing::Combine(::testing::Values("llama", "qwen2", "qwen3",
                                                              "deepseek_v3", "deepseek_v32"),
                                            ::testing::ValuesIn(isas_of_this_machine())),
                         [](const auto& parameter) {
                           return std::get<0>(parameter.param) + "_" +
                                  std::string(kernels::isa_name(std::get<1>(parameter.param)));
                         });

TEST(Llama, EmulatedVectorsGiveTheBitsOfAvx512) {
  if (!kernels::choose_isa("avx512").ok()) return;  // nothing to compare with on this machine
  const std::vector<int32_t> ids = random_ids(200, 8);
  for (const char* name : {"llama", "qwen2", "qwen3", "deepseek_v3", "deepseek_v32"}) {
    for (const KvMode kv : {KvMode::official, KvMode::f32}) {
      RunnerOptions options{.isa = kernels::Isa::avx512, .kv = kv, .max_rows = 256};
      const auto native = ModelRunner::open(tiny_model_path(name), options).logits(ids, 200);
      options.isa = kernels::Isa::emulated512;
      EXPECT_TRUE(ModelRunner::open(tiny_model_path(name), options).logits(ids, 200) == native)
          << name;
    }
  }
}

// Float weights have no int8 products: fast computes what exact does.
TEST(Llama, FastEqualsExactForFloatWeights) {
  const std::vector<int32_t> ids = random_ids(60, 9);
  for (kernels::Isa isa : isas_of_this_machine()) {
    RunnerOptions options{.isa = isa, .kv = KvMode::official};
    const auto exact = ModelRunner::open(tiny_model_path("qwen3"), options).logits(ids, 60);
    options.numerics = kernels::Numerics::fast;
    EXPECT_TRUE(ModelRunner::open(tiny_model_path("qwen3"), options).logits(ids, 60) == exact);
  }
}

}  // namespace
}  // namespace deepinfer::models
