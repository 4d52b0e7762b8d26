// The MTP layer and the DSpark stages against tests/golden/deepseek_v4, and what their rows keep.

#include "models/deepseek_v4/deepseek_v4_draft.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "models/deepseek_v4/v4_goldens_test.h"

namespace deepinfer::models {
namespace {

using V4Mtp = V4GoldenModel;

TEST_P(V4Mtp, FollowsTheGolden) {
  ModelRunner runner = open();
  const GoldenFile golden = V4GoldenModel::golden();
  auto& model = dynamic_cast<DeepseekV4&>(runner.model());
  V4Taps taps;
  model.set_taps(&taps);
  const std::vector<int32_t> ids = golden_ids(golden["short.input_ids"]);
  cache::SequenceCache sequence = runner.new_sequence();
  runner.step({{&sequence, ids}});
  const size_t rows = ids.size() - 1, width = model.pass().streams().width();
  const std::span<const float> streams = std::span(taps.streams).first(rows * width);
  const std::span<const int32_t> next = std::span(ids).subspan(1);
  V4MtpDrafter drafter(model);
  V4MtpDrafter::Output whole;
  const V4MtpDrafter::Run run = {&sequence, 0, streams, next};
  ASSERT_TRUE(drafter.forward({&run, 1}, whole).ok());
  expect_error(golden_name(), "MTP streams, largest",
               worst_of(whole.streams, golden["mtp.streams"].as<float>()), kTapTolerance);
  expect_error(golden_name(), "MTP logits, largest",
               worst_of(whole.logits, golden["mtp.logits"].as<float>()), kLogitTolerance);

  // Row by row, beside another sequence, the same bits.
  cache::SequenceCache single = runner.new_sequence(), other = runner.new_sequence();
  for (size_t row = 0; row < rows; ++row) {
    const V4MtpDrafter::Run runs[] = {
        {&other, row, streams.subspan((rows - 1 - row) * width, width), next.subspan(row, 1)},
        {&single, row, streams.subspan(row * width, width), next.subspan(row, 1)}};
    V4MtpDrafter::Output output;
    ASSERT_TRUE(drafter.forward(runs, output).ok());
    const size_t vocab = runner.vocab();
    EXPECT_TRUE(std::equal(output.logits.begin() + static_cast<ptrdiff_t>(vocab),
                           output.logits.end(),
                           whole.logits.begin() + static_cast<ptrdiff_t>(row * vocab)))
        << "row " << row;
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, V4Mtp,
                         ::testing::Combine(::testing::Values("flash", "quant"),
                                            ::testing::ValuesIn(isas_of_this_machine())),
                         v4_case_name);

using V4DsparkTest = V4GoldenModel;

// The target consumes seq[0..p] and feeds the drafter; the anchor is seq[p + 1].
TEST_P(V4DsparkTest, FollowsTheGolden) {
  ModelRunner runner = open();
  const GoldenFile golden = V4GoldenModel::golden();
  auto& model = dynamic_cast<DeepseekV4&>(runner.model());
  V4Taps taps;
  model.set_taps(&taps);
  V4DsparkDrafter drafter(model);
  const std::vector<int32_t> seq = golden_ids(golden["seq"]),
                             places = golden_ids(golden["rounds.p"]);
  const std::span<const float> tap = golden["tap"].as<float>();
  const std::span<const float> main = golden["main_x"].as<float>();
  const size_t width = golden["tap"].shape[1], hidden = golden["main_x"].shape[1];
  cache::SequenceCache sequence = runner.new_sequence();
  size_t done = 0;
  for (size_t round = 0; round < places.size(); ++round) {
    const size_t p = static_cast<size_t>(places[round]), rows = p + 1 - done;
    runner.step({{&sequence,
                  {seq.begin() + static_cast<ptrdiff_t>(done),
                   seq.begin() + static_cast<ptrdiff_t>(p + 1)}}});
    expect_error(golden_name(), "taps, largest",
                 worst_of(taps.means, tap.subspan(done * width, rows * width)), kTapTolerance);
    std::vector<float> main_x;
    const V4DsparkDrafter::Feed feed = {&sequence, done, taps.means};
    ASSERT_TRUE(drafter.feed({&feed, 1}, &main_x).ok());
    expect_error(golden_name(), "fed rows, largest",
                 worst_of(main_x, main.subspan(done * hidden, rows * hidden)), kTapTolerance);
    done = p + 1;

    V4DsparkDrafter::Draft draft;
    const V4DsparkDrafter::Anchor anchor = {&sequence, p, seq[p + 1]};
    ASSERT_TRUE(drafter.draft({&anchor, 1}, draft).ok());
    const size_t block = draft.block, vocab = runner.vocab();
    const auto of_round = [&](const char* name, size_t size) {
      return golden[name].as<float>().subspan(round * size, size);
    };
    const std::vector<int32_t> drafts = golden_ids(golden["rounds.draft"]);
    EXPECT_TRUE(std::equal(draft.ids.begin(), draft.ids.end(),
                           drafts.begin() + static_cast<ptrdiff_t>(round * block)))
        << "round " << round;
    expect_error(golden_name(), "draft logits, largest",
                 worst_of(draft.logits, of_round("rounds.logits", block * vocab)), kLogitTolerance);
    expect_error(golden_name(), "draft streams, largest",
                 worst_of(draft.collapsed, of_round("rounds.y", block * hidden)), kTapTolerance);
    expect_error(golden_name(), "draft confidences, largest",
                 worst_of(draft.confidence, of_round("rounds.confidence", block)), kLogitTolerance);
  }
}

// Rows that were fed and rejected, and drafts that were made, leave no trace; company and threads
// do not matter.
TEST_P(V4DsparkTest, RejectedRowsAndCompanyDoNotMatter) {
  const GoldenFile golden = V4GoldenModel::golden();
  const std::vector<int32_t> seq = golden_ids(golden["seq"]);
  const std::span<const float> tap = golden["tap"].as<float>();
  const size_t width = golden["tap"].shape[1];
  for (const KvMode kv : {KvMode::f32, KvMode::official}) {
    ModelRunner plain = open({.kv = kv}), threaded = open({.kv = kv, .threads = 3});
    std::vector<V4DsparkDrafter::Draft> drafts;
    constexpr size_t kPosition = 30;
    for (ModelRunner* runner : {&plain, &threaded}) {
      auto& model = dynamic_cast<DeepseekV4&>(runner->model());
      V4DsparkDrafter drafter(model);
      cache::SequenceCache sequence = runner->new_sequence(), other = runner->new_sequence();
      const auto feed = [&](cache::SequenceCache& cache, size_t position, size_t from,
                            size_t rows) {
        const V4DsparkDrafter::Feed rows_of = {&cache, position,
                                               tap.subspan(from * width, rows * width)};
        ASSERT_TRUE(drafter.feed({&rows_of, 1}).ok());
      };
      const V4DsparkDrafter::Anchor anchors[] = {{&other, 8, 5}, {&sequence, kPosition, seq[31]}};
      V4DsparkDrafter::Draft draft;
      if (runner == &plain) {
        feed(sequence, 0, 0, kPosition + 1);
        ASSERT_TRUE(drafter.draft({anchors + 1, 1}, draft).ok());
        drafts.push_back(draft);
        continue;
      }
      feed(other, 0, 20, 9);
      for (size_t p = 0; p <= kPosition; p += 1) {
        feed(sequence, p, p, 1);
        feed(sequence, p + 1, 40, 6);  // rejected
      }
      ASSERT_TRUE(drafter.draft({anchors, 1}, draft).ok());
      ASSERT_TRUE(drafter.draft(anchors, draft).ok());
      drafts.push_back(draft);
    }
    const std::vector<float>& alone = drafts[0].logits;
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(),
                           drafts[1].logits.begin() + static_cast<ptrdiff_t>(alone.size())));
    EXPECT_TRUE(std::equal(drafts[0].confidence.begin(), drafts[0].confidence.end(),
                           drafts[1].confidence.begin() + 5));
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, V4DsparkTest,
                         ::testing::Combine(::testing::Values("dspark"),
                                            ::testing::ValuesIn(isas_of_this_machine())),
                         v4_case_name);

}  // namespace
}  // namespace deepinfer::models
