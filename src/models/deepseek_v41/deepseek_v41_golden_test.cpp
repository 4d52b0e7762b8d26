// V4.1 against the reference (tests/golden/deepseek_v41), end to end, on every instruction set.
// Tolerances are those of the goldens' README.

#include <gtest/gtest.h>

#include <string>

#include "models/deepseek_v41/v41_goldens_test.h"

namespace deepinfer::models {
namespace {

class V41Golden : public ::testing::TestWithParam<kernels::Isa> {
 protected:
  ModelRunner open(const std::string& model, KvMode kv,
                   kernels::Numerics numerics = kernels::Numerics::exact) const {
    return ModelRunner::open(
        v41_path(model),
        {.isa = GetParam(), .numerics = numerics, .kv = kv, .max_rows = 640, .pages = 24});
  }
};

TEST_P(V41Golden, LogitsOfEveryPosition) {
  ModelRunner runner = open("base", KvMode::f32);
  const GoldenFile golden = v41_golden("a_fp32");
  const std::vector<int32_t> ids = golden_ids(golden["input_ids"]);
  const Difference d = difference(runner.logits(ids, ids.size()), golden["logits"].as<float>());
  expect_error("deepseek_v41/a_fp32", "logits, largest", d.largest, 1e-3);
  EXPECT_EQ(runner.greedy(ids, 32), golden_ids(golden["greedy_tokens"]));
}

TEST_P(V41Golden, OfficialCacheRows) {
  ModelRunner runner = open("base", KvMode::official);
  const GoldenFile golden = v41_golden("b_kvquant");
  const std::vector<int32_t> ids = golden_ids(golden["input_ids"]);
  const Difference d = difference(runner.logits(ids, ids.size()), golden["logits"].as<float>());
  expect_error("deepseek_v41/b_kvquant", "logits, rms", d.rms, 0.1);
  EXPECT_EQ(runner.greedy(ids, 32), golden_ids(golden["greedy_tokens"]));
}

TEST_P(V41Golden, OfficialRoundingEndToEnd) {
  ModelRunner runner = open("base", KvMode::official, kernels::Numerics::faithful);
  const GoldenFile golden = v41_golden("b_official");
  const std::vector<int32_t> ids = golden_ids(golden["input_ids"]);
  const Difference d = difference(runner.logits(ids, ids.size()), golden["logits"].as<float>());
  expect_error("deepseek_v41/b_official", "faithful: logits, rms", d.rms, 1.2);
}

// int8 activations on FP4 experts, official cache rows: near the unrounded model.
TEST_P(V41Golden, FastStaysClose) {
  ModelRunner runner = open("base", KvMode::official, kernels::Numerics::fast);
  const GoldenFile golden = v41_golden("b_kvquant");
  const std::vector<int32_t> ids = golden_ids(golden["input_ids"]);
  const Difference d = difference(runner.logits(ids, ids.size()), golden["logits"].as<float>());
  expect_error("deepseek_v41/b_kvquant", "fast: logits, rms", d.rms, 1.2);
}

TEST_P(V41Golden, LongPrompt) {
  ModelRunner runner = open("long", KvMode::f32);
  const GoldenFile golden = v41_golden("c_long");
  const std::vector<int32_t> ids = golden_ids(golden["input_ids"]);
  v41_model(runner).observe([&](const V41LayerView& view) {
    const std::string layer = std::to_string(view.layer);
    if (!view.after || view.rows != 640) return;
    for (size_t i = 0; i < 16; ++i) {
      const size_t row = 624 + i;
      if (golden.has("selected_last16." + layer)) {
        const std::vector<uint32_t> expected = row_ids(golden["selected_last16." + layer], i);
        const uint32_t* selected = view.selection->selected(row);
        EXPECT_EQ(std::vector<uint32_t>(selected, selected + view.selection->count(row)), expected)
            << "layer " << layer << " row " << row;
      }
      if (view.layer == 6) {
        const uint32_t* blocks = view.selection->candidates(row);
        EXPECT_EQ(std::vector<uint32_t>(blocks, blocks + view.selection->candidate_count(row)),
                  row_ids(golden["candidate_blocks_last16"], i))
            << "row " << row;
      }
    }
  });
  const Difference d = difference(runner.logits(ids, ids.size()), golden["logits"].as<float>());
  expect_error("deepseek_v41/c_long", "logits, largest", d.largest, 1e-3);
  v41_model(runner).observe(nullptr);
  EXPECT_EQ(runner.greedy(ids, 32), golden_ids(golden["greedy_tokens"]));
}

// A value on a rounding edge flips a code and moves later rows, so the judge is the distribution.
TEST_P(V41Golden, LongPromptOfficialCacheRows) {
  ModelRunner runner = open("long", KvMode::official);
  const GoldenFile golden = v41_golden("c_long");
  const std::vector<int32_t> ids = golden_ids(golden["input_ids"]);
  const std::vector<float> logits = runner.logits(ids, ids.size());
  const std::span<const float> last = std::span<const float>(logits).last(128 * runner.vocab());
  const std::span<const float> expected = golden["kvquant.logits_last128"].as<float>();
  const Difference d = difference(last, expected);
  expect_error("deepseek_v41/c_long", "official cache rows: last 128 logits, rms", d.rms, 0.6);
  size_t same = 0;
  for (size_t row = 0; row < 128; ++row) {
    same += argmax(last.subspan(row * runner.vocab(), runner.vocab())) ==
                    argmax(expected.subspan(row * runner.vocab(), runner.vocab()))
                ? 1
                : 0;
  }
  expect_agreement("deepseek_v41/c_long", "official cache rows: rows of the same top-1, share",
                   static_cast<double>(same) / 128, 122.0 / 128);
  EXPECT_EQ(runner.greedy(ids, 32), golden_ids(golden["kvquant.greedy_tokens"]));
}

INSTANTIATE_TEST_SUITE_P(AllIsas, V41Golden, ::testing::ValuesIn(isas_of_this_machine()),
                         [](const auto& parameter) {
                           return std::string(kernels::isa_name(parameter.param));
                         });

}  // namespace
}  // namespace deepinfer::models
