// What a V4 sequence keeps is enough and exact: any chunking, company, threads, snapshot, rolled
// back draft or page that another sequence used before gives the same bits.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <tuple>

#include "models/deepseek_v4/deepseek_v4.h"
#include "models/model_runner.h"

namespace deepinfer::models {
namespace {

constexpr size_t kIds = 300;  // into the third page

std::string model_path(const std::string& name) {
  return std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/deepseek_v4/" + name;
}

std::vector<int32_t> random_ids(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 512);
  return ids;
}

std::vector<int32_t> part(const std::vector<int32_t>& ids, size_t first, size_t end) {
  return {ids.begin() + static_cast<ptrdiff_t>(first), ids.begin() + static_cast<ptrdiff_t>(end)};
}

// Logits [ids][vocab] of one sequence fed in chunks of these sizes, the rest in one.
std::vector<float> in_chunks(ModelRunner& runner, const std::vector<int32_t>& ids,
                             std::vector<size_t> chunks) {
  cache::SequenceCache sequence = runner.new_sequence();
  std::vector<float> all;
  chunks.push_back(ids.size());
  size_t first = 0;
  for (const size_t chunk : chunks) {
    const size_t end = std::min(ids.size(), first + chunk);
    if (end == first) break;
    const std::vector<float> rows = runner.step({{&sequence, part(ids, first, end)}});
    all.insert(all.end(), rows.begin(), rows.end());
    first = end;
  }
  return all;
}

// A snapshot: the frontier's bytes and the pages, in another sequence.
cache::SequenceCache copy_of(ModelRunner& runner, cache::SequenceCache& from) {
  const cache::CacheLayout& layout = runner.model().cache_layout();
  cache::SequenceCache to = runner.new_sequence();
  EXPECT_TRUE(to.reserve(from.length()).ok());
  for (size_t page = 0; page < cache::pages_for(from.length()); ++page) {
    for (size_t stream = 0; stream < layout.growing.size(); ++stream) {
      std::memcpy(to.page(page, stream), from.page(page, stream),
                  layout.growing[stream].bytes_per_page);
    }
  }
  std::memcpy(to.frontier(), from.frontier(), layout.frontier_bytes());
  to.set_length(from.length());
  return to;
}

using Case = std::tuple<std::string, kernels::Isa, KvMode>;

class V4State : public ::testing::TestWithParam<Case> {
 protected:
  ModelRunner open(size_t threads = 1, uint64_t stream_bytes = 0) const {
    const auto& [name, isa, kv] = GetParam();
    return ModelRunner::open(model_path(name), {.isa = isa,
                                                .kv = kv,
                                                .threads = threads,
                                                .max_rows = kIds,
                                                .pages = 32,
                                                .stream_bytes = stream_bytes});
  }
  // Whether rows [first, end) of `logits` are the same rows of `whole`.
  static bool same_rows(const std::vector<float>& logits, const std::vector<float>& whole,
                        size_t first, size_t vocab) {
    return logits.size() + first * vocab <= whole.size() &&
           std::equal(logits.begin(), logits.end(),
                      whole.begin() + static_cast<ptrdiff_t>(first * vocab));
  }
};

TEST_P(V4State, AnyChunkingGivesTheSameBits) {
  ModelRunner runner = open();
  const std::vector<int32_t> ids = random_ids(kIds, 1);
  const std::vector<float> whole = in_chunks(runner, ids, {});
  EXPECT_TRUE(in_chunks(runner, ids, {7, 1, 30, 32}) == whole);
  EXPECT_TRUE(in_chunks(runner, ids, std::vector<size_t>(kIds, 1)) == whole) << "single steps";
  EXPECT_TRUE(in_chunks(runner, ids, {127, 1, 1, 126, 3}) == whole);
  EXPECT_TRUE(in_chunks(runner, ids, {128, 4, 131, 2, 2}) == whole);
}

TEST_P(V4State, InterleavedSequencesDoNotSeeEachOther) {
  ModelRunner runner = open();
  const std::vector<int32_t> a = random_ids(200, 2), b = random_ids(150, 3);
  const std::vector<float> alone_a = in_chunks(runner, a, {}), alone_b = in_chunks(runner, b, {});
  cache::SequenceCache first = runner.new_sequence(), second = runner.new_sequence();
  const size_t vocab = runner.vocab();
  size_t at_a = 0, at_b = 0;
  for (size_t step = 0; at_a < a.size() || at_b < b.size(); ++step) {
    const size_t rows_a = std::min(step % 3 == 0 ? size_t{13} : size_t{5}, a.size() - at_a);
    const size_t rows_b = std::min(step % 2 == 0 ? size_t{1} : size_t{11}, b.size() - at_b);
    std::vector<ModelRunner::Feed> feeds;
    if (rows_b > 0) feeds.push_back({&second, part(b, at_b, at_b + rows_b)});
    if (rows_a > 0) feeds.push_back({&first, part(a, at_a, at_a + rows_a)});
    const std::vector<float> logits = runner.step(feeds);
    const auto border = logits.begin() + static_cast<ptrdiff_t>(rows_b * vocab);
    ASSERT_TRUE(same_rows({logits.begin(), border}, alone_b, at_b, vocab)) << at_b;
    ASSERT_TRUE(same_rows({border, logits.end()}, alone_a, at_a, vocab)) << at_a;
    at_a += rows_a;
    at_b += rows_b;
  }
}

TEST_P(V4State, ThreadsDoNotMatter) {
  const std::vector<int32_t> ids = random_ids(200, 4);
  ModelRunner one = open(1), three = open(3);
  const std::vector<float> whole = in_chunks(one, ids, {});
  EXPECT_TRUE(in_chunks(three, ids, {}) == whole);
  EXPECT_TRUE(in_chunks(three, ids, {1, 130, 1, 2}) == whole);
}

// The state of spec v4.md 6.2 is complete: frontier and pages go on in another sequence.
TEST_P(V4State, SnapshotsResume) {
  ModelRunner runner = open();
  const std::vector<int32_t> ids = random_ids(160, 5);
  const std::vector<float> whole = in_chunks(runner, ids, {});
  for (const size_t p : {1, 3, 4, 7, 64, 127, 128, 129, 131}) {
    cache::SequenceCache sequence = runner.new_sequence();
    runner.step({{&sequence, part(ids, 0, p)}});
    cache::SequenceCache resumed = copy_of(runner, sequence);
    // The original goes elsewhere meanwhile.
    runner.step({{&sequence, random_ids(20, 6)}});
    const std::vector<float> rest = runner.step({{&resumed, part(ids, p, ids.size())}});
    EXPECT_TRUE(same_rows(rest, whole, p, runner.vocab())) << "at " << p;
  }
}

// Rejected drafts: rows after p are forgotten, twice in a row, and the true ones follow.
TEST_P(V4State, RolledBackRowsLeaveNoTrace) {
  ModelRunner runner = open();
  const std::vector<int32_t> ids = random_ids(140, 7);
  const std::vector<float> whole = in_chunks(runner, ids, {});
  for (const size_t p : {1, 2, 4, 7, 15, 16, 63, 121, 124, 127, 128, 130}) {
    cache::SequenceCache prefix = runner.new_sequence();
    runner.step({{&prefix, part(ids, 0, p)}});
    for (size_t drafted = 1; drafted <= runner.model().rollback_rows(); ++drafted) {
      cache::SequenceCache sequence = copy_of(runner, prefix);
      for (uint32_t round = 0; round < 2; ++round) {
        runner.step({{&sequence, random_ids(drafted, 8 + round)}});
        sequence.set_length(p);
      }
      const std::vector<float> rest = runner.step({{&sequence, part(ids, p, p + 9)}});
      EXPECT_TRUE(same_rows(rest, whole, p, runner.vocab())) << drafted << " rows after " << p;
    }
  }
}

TEST_P(V4State, ReusedPagesHoldNothingOfTheLastSequence) {
  ModelRunner runner = open();
  const std::vector<int32_t> ids = random_ids(150, 9);
  const std::vector<float> fresh = in_chunks(runner, ids, {40});
  in_chunks(runner, random_ids(260, 10), {});
  EXPECT_TRUE(in_chunks(runner, ids, {40}) == fresh);
}

// Steps whose rows want no logits stop in the last layer; what they leave must be all the same.
TEST_P(V4State, StepsWithoutLogitsFillTheCache) {
  ModelRunner runner = open();
  const std::vector<int32_t> ids = random_ids(150, 11);
  const std::vector<float> whole = in_chunks(runner, ids, {});
  cache::SequenceCache sequence = runner.new_sequence();
  ASSERT_TRUE(sequence.reserve(ids.size()).ok());
  StepOutput output;
  for (size_t first = 0; first < 133; first += 19) {
    const std::vector<int32_t> chunk = part(ids, first, first + 19);
    std::vector<uint64_t> positions;
    for (size_t i = 0; i < chunk.size(); ++i) positions.push_back(first + i);
    const std::vector<uint8_t> want(chunk.size(), 0);
    const std::vector<uint32_t> row_start = {0, static_cast<uint32_t>(chunk.size())};
    cache::SequenceCache* caches[] = {&sequence};
    ASSERT_TRUE(runner.model().forward({chunk, positions, row_start, want, caches}, output).ok());
    EXPECT_EQ(output.wanted_rows, 0u);
    sequence.set_length(first + chunk.size());
  }
  const std::vector<float> rest = runner.step({{&sequence, part(ids, 133, 150)}});
  EXPECT_TRUE(same_rows(rest, whole, 133, runner.vocab()));
}

std::string case_name(const ::testing::TestParamInfo<Case>& parameter) {
  return std::get<0>(parameter.param) + "_" +
         std::string(kernels::isa_name(std::get<1>(parameter.param))) +
         (std::get<2>(parameter.param) == KvMode::f32 ? "_f32" : "_official");
}

std::vector<kernels::Isa> vector_isas() {
  std::vector<kernels::Isa> isas = isas_of_this_machine();
  std::erase(isas, kernels::Isa::ref);
  return isas;
}

INSTANTIATE_TEST_SUITE_P(VectorIsas, V4State,
                         ::testing::Combine(::testing::Values("flash", "pro", "long", "quant",
                                                              "dspark"),
                                            ::testing::ValuesIn(vector_isas()),
                                            ::testing::Values(KvMode::f32, KvMode::official)),
                         case_name);
// The scalar bodies are slow: one model that has every kind of layer.
INSTANTIATE_TEST_SUITE_P(Ref, V4State,
                         ::testing::Combine(::testing::Values("dspark"),
                                            ::testing::Values(kernels::Isa::ref),
                                            ::testing::Values(KvMode::f32, KvMode::official)),
                         case_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(V4State);

// Every numerics mode keeps the promise, and faithful is not exact.
TEST(V4, ChunksAgreeInEveryNumericsMode) {
  const kernels::Isa isa = isas_of_this_machine().back();
  const std::vector<int32_t> ids = random_ids(150, 12);
  for (const char* name : {"flash", "quant"}) {
    std::vector<std::vector<float>> all;
    for (const kernels::Numerics numerics :
         {kernels::Numerics::exact, kernels::Numerics::fast, kernels::Numerics::faithful}) {
      ModelRunner runner = ModelRunner::open(
          model_path(name),
          {.isa = isa, .numerics = numerics, .kv = KvMode::official, .max_rows = 160});
      all.push_back(in_chunks(runner, ids, {}));
      EXPECT_TRUE(in_chunks(runner, ids, {7, 1, 30, 32}) == all.back());
      EXPECT_TRUE(in_chunks(runner, ids, std::vector<size_t>(150, 1)) == all.back());
    }
    EXPECT_FALSE(all[2] == all[0]) << "faithful rounds nothing";
  }
}

TEST(V4, EmulatedVectorsGiveTheBitsOfAvx512) {
  if (!kernels::choose_isa("avx512").ok()) return;  // nothing to compare with on this machine
  const std::vector<int32_t> ids = random_ids(200, 13);
  for (const char* name : {"flash", "pro", "quant"}) {
    for (const KvMode kv : {KvMode::official, KvMode::f32}) {
      RunnerOptions options{.isa = kernels::Isa::avx512, .kv = kv, .max_rows = 256};
      ModelRunner native = ModelRunner::open(model_path(name), options);
      options.isa = kernels::Isa::emulated512;
      ModelRunner emulated = ModelRunner::open(model_path(name), options);
      EXPECT_TRUE(in_chunks(native, ids, {}) == in_chunks(emulated, ids, {})) << name;
    }
  }
}

// Root mean square of the logits' differences, per row.
std::vector<double> row_distances(const std::vector<float>& a, const std::vector<float>& b,
                                  size_t vocab) {
  std::vector<double> distances;
  for (size_t first = 0; first < a.size(); first += vocab) {
    double squares = 0;
    for (size_t i = first; i < first + vocab; ++i) {
      squares += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    }
    distances.push_back(std::sqrt(squares / static_cast<double>(vocab)));
  }
  return distances;
}

double middle_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Rows of 8 bits instead of 32: the logits (deviation 4) move a little. Index keys of 4 bits flip
// selections, which in models this small (8 of 75 entries, 64 values wide) moves them more: what
// they select must overlap with what unrounded keys do, in the first layer that selects.
TEST(V4, OfficialCacheRowsStayClose) {
  const std::vector<int32_t> ids = random_ids(kIds, 14);
  for (const char* name : {"flash", "pro", "long", "quant"}) {
    RunnerOptions options{.isa = isas_of_this_machine().back(), .max_rows = kIds};
    std::vector<std::vector<float>> logits;
    V4Taps taps[2] = {{.blocks = true, .layers = {}, .means = {}, .streams = {}},
                      {.blocks = true, .layers = {}, .means = {}, .streams = {}}};
    size_t vocab = 0, selecting = 0, topk = 0;
    for (const KvMode kv : {KvMode::f32, KvMode::official}) {
      options.kv = kv;
      ModelRunner runner = ModelRunner::open(model_path(name), options);
      auto& model = dynamic_cast<DeepseekV4&>(runner.model());
      while (!model.plan().layers[selecting].index_keys) ++selecting;
      model.set_taps(&taps[logits.size()]);
      logits.push_back(in_chunks(runner, ids, {}));
      vocab = runner.vocab();
      topk = model.v4_config().indexer.topk;
    }
    const std::vector<double> distances = row_distances(logits[0], logits[1], vocab);
    // Below, every entry is selected.
    const size_t all_selected = (topk + 1) * kOverlapRatio - 1;
    const double early = middle_of({distances.begin(), distances.begin() + all_selected});
    size_t common = 0, chosen = 0;
    for (size_t row = all_selected; row < ids.size(); ++row) {
      const std::vector<uint32_t>& a = taps[0].layers[selecting].selected[row];
      for (const uint32_t entry : taps[1].layers[selecting].selected[row]) {
        common += static_cast<size_t>(std::count(a.begin(), a.end(), entry));
      }
      chosen += a.size();
    }
    const double overlap = static_cast<double>(common) / static_cast<double>(chosen);
    RecordProperty(name, "early " + std::to_string(early) + " all " +
                             std::to_string(middle_of(distances)) + " overlap " +
                             std::to_string(overlap));
    EXPECT_LT(early, 0.6) << name;
    EXPECT_GT(early, 1e-4) << name << ": the rows were not rounded";
    EXPECT_LT(middle_of(distances), 2.0) << name;
    EXPECT_GT(overlap, 0.7) << name;
    EXPECT_LT(overlap, 1.0) << name << ": the index keys were not rounded";
  }
}

// Experts through the fewest slots give the bits of experts in memory.
TEST(V4, StreamedExpertsGiveTheSameBits) {
  const std::vector<int32_t> ids = random_ids(60, 15);
  for (const char* name : {"flash", "quant"}) {
    RunnerOptions options{.isa = isas_of_this_machine().back()};
    ModelRunner resident = ModelRunner::open(model_path(name), options);
    options.stream_bytes = uint64_t{1} << 20;
    ModelRunner streamed = ModelRunner::open(model_path(name), options);
    EXPECT_TRUE(in_chunks(streamed, ids, {7, 1, 30}) == in_chunks(resident, ids, {}));
  }
}

TEST(V4, RatiosThatDoNotDivideAPageAreRefused) {
  weights::DeepseekV4Config config;
  config.layers = 2;
  config.head_dim = 64;
  config.window = 16;
  config.ratios = {4, 96};
  WindowCache windows(WindowCache::kSpareRows);
  const Result<V4CachePlan> plan = plan_v4_cache(config, KvMode::f32, windows);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().text(),
            "compress_ratios: layer 1 has 96, which does not divide the 128 tokens of a page");
}

}  // namespace
}  // namespace deepinfer::models
