// What V4.1 keeps of a sequence: chunks, company, threads, rollback, resumption from a copy of the
// cache, and the bounded replays.

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "models/deepseek_v41/v41_goldens_test.h"

namespace deepinfer::models {
namespace {

std::vector<int32_t> random_ids(size_t count, uint32_t seed, size_t vocab) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % vocab);
  return ids;
}

std::vector<float> rows_from(const std::vector<float>& logits, size_t row, size_t vocab) {
  return {logits.begin() + static_cast<std::ptrdiff_t>(row * vocab), logits.end()};
}

struct Case {
  kernels::Isa isa;
  kernels::Numerics numerics;
  KvMode kv;
};

class V41State : public ::testing::TestWithParam<Case> {
 protected:
  ModelRunner open(const std::string& model = "base", size_t threads = 1,
                   uint64_t stream_bytes = 0) const {
    return ModelRunner::open(v41_path(model), {.isa = GetParam().isa,
                                               .numerics = GetParam().numerics,
                                               .kv = GetParam().kv,
                                               .threads = threads,
                                               .max_rows = 320,
                                               .pages = 48,
                                               .stream_bytes = stream_bytes});
  }
};

TEST_P(V41State, AnyChunkingGivesTheSameBits) {
  ModelRunner runner = open();
  const std::vector<int32_t> ids = random_ids(70, 1, runner.vocab());
  const std::vector<float> whole = runner.logits(ids, ids.size());
  for (size_t chunk : {1, 2, 3, 4, 7, 33}) {
    EXPECT_TRUE(runner.logits(ids, chunk) == whole) << "chunks of " << chunk;
  }
}

// Positions 127 .. 130 and 255 .. 257 lie at page edges, and far beyond window and top-k.
TEST_P(V41State, PageEdges) {
  ModelRunner runner = open("long");
  const std::vector<int32_t> ids = random_ids(262, 2, runner.vocab());
  const std::vector<float> whole = runner.logits(ids, ids.size());
  for (size_t cut : {127, 128, 129, 130, 255, 256, 257}) {
    cache::SequenceCache sequence = runner.new_sequence();
    runner.step({{&sequence, part(ids, 0, cut), false}});
    EXPECT_TRUE(runner.step({{&sequence, part(ids, cut, ids.size())}}) ==
                rows_from(whole, cut, runner.vocab()))
        << "cut at " << cut;
  }
}

TEST_P(V41State, CompanyDoesNotMatter) {
  ModelRunner runner = open();
  const std::vector<int32_t> a = random_ids(60, 3, runner.vocab());
  const std::vector<int32_t> b = random_ids(45, 4, runner.vocab());
  const std::vector<float> alone_a = runner.logits(a, a.size());
  const std::vector<float> alone_b = runner.logits(b, b.size());
  cache::SequenceCache first = runner.new_sequence(), second = runner.new_sequence();
  std::vector<float> got_a, got_b;
  for (size_t step = 0; step < 15; ++step) {
    const std::vector<int32_t> rows_a = part(a, 4 * step, 4 * step + 4);
    const std::vector<int32_t> rows_b = part(b, 3 * step, 3 * step + 3);
    const bool swap = step % 2 == 1;
    const std::vector<float> logits = swap ? runner.step({{&second, rows_b}, {&first, rows_a}})
                                           : runner.step({{&first, rows_a}, {&second, rows_b}});
    const auto middle =
        logits.begin() + static_cast<std::ptrdiff_t>((swap ? 3 : 4) * runner.vocab());
    (swap ? got_b : got_a).insert((swap ? got_b : got_a).end(), logits.begin(), middle);
    (swap ? got_a : got_b).insert((swap ? got_a : got_b).end(), middle, logits.end());
  }
  EXPECT_TRUE(got_a == alone_a);
  EXPECT_TRUE(got_b == alone_b);
}

TEST_P(V41State, ThreadsDoNotMatter) {
  ModelRunner runner = open();
  const std::vector<int32_t> ids = random_ids(70, 5, runner.vocab());
  const std::vector<float> one = runner.logits(ids, ids.size());
  EXPECT_TRUE(open("base", 3).logits(ids, ids.size()) == one);
  EXPECT_TRUE(open("base", 2).logits(ids, 9) == one);
}

// Rejected drafts, with another sequence in the same steps.
TEST_P(V41State, RolledBackRowsLeaveNoTrace) {
  ModelRunner runner = open();
  ASSERT_GE(runner.model().rollback_rows(), 6u);
  const std::vector<int32_t> ids = random_ids(48, 6, runner.vocab());
  const std::vector<float> whole = runner.logits(ids, ids.size());
  for (size_t draft = 1; draft <= 6; ++draft) {
    cache::SequenceCache sequence = runner.new_sequence(), other = runner.new_sequence();
    const size_t kept = 30 + draft;
    runner.step({{&sequence, part(ids, 0, kept), false}});
    runner.step({{&other, random_ids(draft + 2, 90, runner.vocab()), false},
                 {&sequence, random_ids(draft, 7, runner.vocab()), true}});
    sequence.set_length(kept);
    const std::vector<float> logits =
        runner.step({{&sequence, part(ids, kept, ids.size())}, {&other, {5}, false}});
    const std::vector<float> expected = rows_from(whole, kept, runner.vocab());
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), logits.begin()))
        << "draft of " << draft;
  }
}

// A copy of pages and frontier continues as the original does, at odd positions too.
TEST_P(V41State, CopiesContinueAlike) {
  ModelRunner runner = open();
  const std::vector<int32_t> ids = random_ids(60, 8, runner.vocab());
  const std::vector<float> whole = runner.logits(ids, ids.size());
  for (size_t cut : {1, 8, 37, 38}) {
    cache::SequenceCache sequence = runner.new_sequence();
    runner.step({{&sequence, part(ids, 0, cut), false}});
    cache::SequenceCache copy = copy_of(runner, sequence, true);
    runner.step({{&sequence, random_ids(5, 9, runner.vocab()), false}});
    EXPECT_TRUE(runner.step({{&copy, part(ids, cut, ids.size())}}) ==
                rows_from(whole, cut, runner.vocab()))
        << "cut at " << cut;
  }
}

// Rows before the decoder's tail only feed its cache; the last logits and all later ones are the
// same bits, however the prompt is cut.
TEST_P(V41State, TheDecoderNeedsItsTailOnly) {
  ModelRunner runner = open();
  const uint64_t tail = runner.model().decoder_tail();
  EXPECT_EQ(tail, 4u * 7 + 1);
  const std::vector<int32_t> ids = random_ids(66, 10, runner.vocab());
  const size_t prompt = 60;
  const std::vector<float> whole = runner.logits(ids, ids.size());
  const SequenceStart start = {.decoder = prompt - tail};
  for (size_t chunk : {60, 13, 1}) {
    cache::SequenceCache sequence = runner.new_sequence();
    std::vector<float> logits;
    for (size_t first = 0; first < ids.size(); first += chunk) {
      const size_t end = std::min(ids.size(), first + chunk);
      std::vector<float> step = runner.step({{&sequence, part(ids, first, end), true, start}});
      logits.insert(logits.end(), step.begin(), step.end());
    }
    ASSERT_EQ(logits.size(), (ids.size() - start.decoder) * runner.vocab());
    EXPECT_TRUE(rows_from(logits, tail - 1, runner.vocab()) ==
                rows_from(whole, prompt - 1, runner.vocab()))
        << "chunks of " << chunk;
  }
}

// Entries alone, and enough rows before the point of resumption: the bits of a computation in full
// from there on. One row less shows.
TEST_P(V41State, AReplayOfAllWindowsIsExact) {
  ModelRunner runner = open();
  const uint64_t replay = runner.model().exact_replay();
  EXPECT_EQ(replay, 10u * 7);
  const std::vector<int32_t> ids = random_ids(120, 13, runner.vocab());
  const std::vector<float> whole = runner.logits(ids, ids.size());
  for (const size_t at : {replay + 1, replay + 20, uint64_t{107}}) {
    cache::SequenceCache first = runner.new_sequence();
    runner.step({{&first, part(ids, 0, at), false}});
    const auto resumed = [&](uint64_t rows) {
      cache::SequenceCache sequence = copy_of(runner, first, false);
      const SequenceStart start = {.window = at - rows, .entries = at};
      sequence.set_length(start.window);
      runner.step({{&sequence, part(ids, start.window, at), false, start}});
      return runner.step({{&sequence, part(ids, at, ids.size()), true, start}});
    };
    EXPECT_TRUE(resumed(replay) == rows_from(whole, at, runner.vocab())) << "at " << at;
    EXPECT_FALSE(resumed(replay / 2) == rows_from(whole, at, runner.vocab())) << "at " << at;
  }
}

// One sequence's rows stop at the decoder while another decodes in the same step.
TEST_P(V41State, StoppedRowsLeaveCompanyAlone) {
  ModelRunner runner = open();
  const std::vector<int32_t> ids = random_ids(40, 11, runner.vocab());
  const std::vector<float> whole = runner.logits(ids, ids.size());
  cache::SequenceCache other = runner.new_sequence(), sequence = runner.new_sequence();
  runner.step({{&sequence, part(ids, 0, 37), false}});
  const std::vector<float> logits =
      runner.step({{&other, random_ids(30, 12, runner.vocab()), true, {.decoder = 90}},
                   {&sequence, part(ids, 37, 40)}});
  EXPECT_TRUE(logits == rows_from(whole, 37, runner.vocab()));
}

INSTANTIATE_TEST_SUITE_P(Modes, V41State, ::testing::ValuesIn([] {
                           std::vector<Case> cases;
                           for (kernels::Isa isa : isas_of_this_machine()) {
                             cases.push_back({isa, kernels::Numerics::exact, KvMode::official});
                             if (isa == kernels::Isa::emulated512) continue;
                             cases.push_back({isa, kernels::Numerics::exact, KvMode::f32});
                             cases.push_back({isa, kernels::Numerics::faithful, KvMode::official});
                             cases.push_back({isa, kernels::Numerics::fast, KvMode::official});
                           }
                           return cases;
                         }()),
                         [](const auto& parameter) {
                           return std::string(kernels::isa_name(parameter.param.isa)) + "_" +
                                  std::string(kernels::numerics_name(parameter.param.numerics)) +
                                  (parameter.param.kv == KvMode::f32 ? "_f32" : "_official");
                         });

}  // namespace
}  // namespace deepinfer::models
