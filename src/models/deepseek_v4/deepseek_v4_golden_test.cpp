// The tiny V4 models against transformers in fp32 (tests/golden/deepseek_v4), on every instruction
// set: logits, streams, routing, selections, entries, greedy ids.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/deepseek_v4/deepseek_v4.h"
#include "models/deepseek_v4/v4_goldens_test.h"

namespace deepinfer::models {
namespace {

class V4Golden : public V4GoldenModel {
 protected:
  static ModelRunner open(RunnerOptions options = {}) {
    options.max_rows = 640;
    return V4GoldenModel::open(options);
  }
  // Rows `positions` of [rows][width].
  static std::vector<float> rows_of(std::span<const float> rows, size_t width,
                                    std::span<const int32_t> positions) {
    std::vector<float> out;
    for (const int32_t position : positions) {
      const auto first =
          rows.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(position) * width);
      out.insert(out.end(), first, first + static_cast<ptrdiff_t>(width));
    }
    return out;
  }
  // The golden's list without its -1, and ours.
  static void expect_selected(const GoldenTensor& expected, std::span<const int32_t> positions,
                              const V4BlockTap& tap) {
    const size_t width = expected.shape[1];
    for (size_t i = 0; i < positions.size(); ++i) {
      std::vector<uint32_t> wanted;
      for (size_t j = 0; j < width; ++j) {
        const int32_t entry = expected.as<int32_t>()[i * width + j];
        if (entry >= 0) wanted.push_back(static_cast<uint32_t>(entry));
      }
      EXPECT_EQ(tap.selected[static_cast<size_t>(positions[i])], wanted)
          << "position " << positions[i];
    }
  }
};

TEST_P(V4Golden, Prompt) {
  ModelRunner runner = open();
  const GoldenFile golden = V4GoldenModel::golden();
  auto& model = dynamic_cast<DeepseekV4&>(runner.model());
  V4Taps taps{.blocks = true, .layers = {}, .means = {}, .streams = {}};
  model.set_taps(&taps);
  const std::vector<int32_t> ids = golden_ids(golden["prompt.input_ids"]);
  const std::vector<float> logits = runner.logits(ids, ids.size());
  const float worst =
      worst_of(rows_of(logits, runner.vocab(), golden["prompt.logit_positions"].as<int32_t>()),
               golden["prompt.logits"].as<float>());
  expect_error(golden_name(), "prompt logits, largest", worst, kLogitTolerance);
  const std::span<const int32_t> positions = golden["prompt.tap_positions"].as<int32_t>();
  for (size_t i = 0; i < taps.layers.size(); ++i) {
    const std::string layer = "prompt.layers." + std::to_string(i);
    const size_t width = model.pass().streams().width();
    expect_error(golden_name(), "prompt taps, largest",
                 worst_of(rows_of(taps.layers[i].streams, width, positions),
                          golden[layer + ".out"].as<float>()),
                 kTapTolerance, layer);
    if (golden.has(layer + ".index.selected")) {
      expect_selected(golden[layer + ".index.selected"], positions, taps.layers[i]);
    }
  }
}

TEST_P(V4Golden, EveryTapOfTheShortPrompt) {
  ModelRunner runner = open();
  const GoldenFile golden = V4GoldenModel::golden();
  auto& model = dynamic_cast<DeepseekV4&>(runner.model());
  V4Taps taps{.blocks = true, .layers = {}, .means = {}, .streams = {}};
  model.set_taps(&taps);
  const std::vector<int32_t> ids = golden_ids(golden["short.input_ids"]);
  cache::SequenceCache sequence = runner.new_sequence();
  expect_error(golden_name(), "short logits, largest",
               worst_of(runner.step({{&sequence, ids}}), golden["short.logits"].as<float>()),
               kLogitTolerance);
  std::vector<int32_t> positions(ids.size());
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i);
  for (size_t i = 0; i < taps.layers.size(); ++i) {
    const std::string layer = "short.layers." + std::to_string(i);
    const V4BlockTap& tap = taps.layers[i];
    const auto expect = [&](const std::vector<float>& actual, const std::string& name) {
      expect_error(golden_name(), "short taps, largest",
                   worst_of(actual, golden[layer + "." + name].as<float>()), kTapTolerance,
                   layer + " " + name);
    };
    expect(tap.attn_in, "attn_in");
    expect(tap.attn_out, "attn_out");
    expect(tap.ffn_in, "ffn_in");
    expect(tap.ffn_out, "ffn_out");
    expect(tap.streams, "out");
    expect(tap.routing.weights, "router.weights");
    EXPECT_EQ(tap.routing.experts, golden_ids(golden[layer + ".router.experts"])) << layer;
    if (!golden.has(layer + ".index.selected")) continue;
    expect_selected(golden[layer + ".index.selected"], positions, tap);
    const GoldenTensor& entries = golden[layer + ".compressed_kv"];
    const auto* stored =
        reinterpret_cast<const float*>(sequence.page(0, model.plan().layers[i].entries->stream));
    expect({stored, stored + entries.shape[0] * entries.shape[1]}, "compressed_kv");
  }
}

TEST_P(V4Golden, GreedyContinuation) {
  ModelRunner runner = open();
  const GoldenFile golden = V4GoldenModel::golden();
  EXPECT_EQ(runner.greedy(golden_ids(golden["prompt.input_ids"]), 32),
            golden_ids(golden["greedy.ids"]));
}

// Five prompts of 1, 2, 3, 5 and 13 tokens in the same steps.
TEST_P(V4Golden, ShortPromptsAsOneRaggedBatch) {
  ModelRunner runner = open();
  const GoldenFile golden = V4GoldenModel::golden();
  constexpr size_t kPrompts = 5, kSteps = 32;
  std::vector<cache::SequenceCache> caches;
  std::vector<std::vector<int32_t>> next(kPrompts), chosen(kPrompts);
  for (size_t i = 0; i < kPrompts; ++i) {
    caches.push_back(runner.new_sequence());
    next[i] = golden_ids(golden["extra." + std::to_string(i) + ".input_ids"]);
  }
  const auto vocab = static_cast<ptrdiff_t>(runner.vocab());
  for (size_t step = 0; step < kSteps; ++step) {
    std::vector<ModelRunner::Feed> feeds;
    for (size_t i = 0; i < kPrompts; ++i) feeds.push_back({&caches[i], next[i], false});
    const std::vector<float> logits = runner.step(feeds);
    for (size_t i = 0; i < kPrompts; ++i) {
      const auto row = logits.begin() + static_cast<ptrdiff_t>(i) * vocab;
      if (step == 0) {
        const std::vector<float> first(row, row + vocab);
        const std::string prompt = "extra." + std::to_string(i);
        expect_error(golden_name(), "first logits of five prompts, largest",
                     worst_of(first, golden[prompt + ".first_logits"].as<float>()), kLogitTolerance,
                     prompt);
      }
      next[i] = {static_cast<int32_t>(std::max_element(row, row + vocab) - row)};
      chosen[i].push_back(next[i][0]);
    }
  }
  for (size_t i = 0; i < kPrompts; ++i) {
    EXPECT_EQ(chosen[i], golden_ids(golden["extra." + std::to_string(i) + ".greedy_ids"])) << i;
  }
}

// Rounding is chaotic: where a value lies near a tie, one bit of a sum moves it by a whole step,
// and a selection with it. Every other row must be that of a program that shares no code with ours.
TEST_P(V4Golden, OfficialRoundingFollowsTheSpecification) {
  if (std::get<0>(GetParam()) != "quant") return;  // the case that has these logits
  const GoldenFile golden = V4GoldenModel::golden();
  const std::vector<int32_t> ids = golden_ids(golden["prompt.input_ids"]);
  const std::span<const int32_t> positions = golden["official.positions"].as<int32_t>();
  for (const bool faithful : {false, true}) {
    ModelRunner runner =
        open({.numerics = faithful ? kernels::Numerics::faithful : kernels::Numerics::exact,
              .kv = KvMode::official});
    const size_t vocab = runner.vocab();
    const std::vector<float> rows = rows_of(runner.logits(ids, ids.size()), vocab, positions);
    const std::span<const float> expected =
        golden[faithful ? "faithful.logits" : "official.logits"].as<float>();
    ASSERT_EQ(rows.size(), expected.size());
    size_t close = 0;
    for (size_t row = 0; row < positions.size(); ++row) {
      const float worst = worst_of(std::span(rows).subspan(row * vocab, vocab),
                                   expected.subspan(row * vocab, vocab));
      close += worst <= 1e-2f ? 1 : 0;
    }
    const double share = static_cast<double>(close) / static_cast<double>(positions.size());
    expect_agreement(golden_name(),
                     faithful ? "faithful: rows within 0.01, share"
                              : "official cache rows: rows within 0.01, share",
                     share, faithful ? 0.35 : 0.9);
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, V4Golden,
                         ::testing::Combine(::testing::Values("flash", "pro", "long", "quant"),
                                            ::testing::ValuesIn(isas_of_this_machine())),
                         v4_case_name);

}  // namespace
}  // namespace deepinfer::models
