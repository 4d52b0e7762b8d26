// The tiny models against transformers in fp32 (tests/golden/llama), on every instruction set.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "models/goldens_test.h"
#include "models/model_runner.h"

namespace deepinfer::models {
namespace {

constexpr float kTolerance = 1e-3f;  // of the golden's README

class TinyModelGolden : public ::testing::TestWithParam<std::tuple<std::string, kernels::Isa>> {
 protected:
  ModelRunner open() const {
    const auto& [name, isa] = GetParam();
    return ModelRunner::open(tiny_model_path(name), {.isa = isa});
  }
  static std::string golden_name() { return "llama/" + std::get<0>(GetParam()); }
  GoldenFile golden() const { return GoldenFile(golden_name() + "/golden.safetensors"); }
};

TEST_P(TinyModelGolden, LogitsOfEveryPosition) {
  ModelRunner runner = open();
  const GoldenFile golden = this->golden();
  for (const std::string prompt : {"prompt", "short"}) {
    const std::vector<int32_t> ids = golden_ids(golden[prompt + ".input_ids"]);
    const std::vector<float> logits = runner.logits(ids, ids.size());
    expect_error(golden_name(), prompt + " logits, largest",
                 worst_of(logits, golden[prompt + ".logits"].as<float>()), kTolerance);
  }
}

TEST_P(TinyModelGolden, GreedyContinuation) {
  ModelRunner runner = open();
  const GoldenFile golden = this->golden();
  EXPECT_EQ(runner.greedy(golden_ids(golden["prompt.input_ids"]), 32),
            golden_ids(golden["greedy.ids"]));
}

TEST_P(TinyModelGolden, ShortPrompts) {
  ModelRunner runner = open();
  const GoldenFile golden = this->golden();
  for (int i = 0; i < 5; ++i) {
    const std::string name = "extra." + std::to_string(i);
    const std::vector<int32_t> ids = golden_ids(golden[name + ".input_ids"]);
    cache::SequenceCache sequence = runner.new_sequence();
    const std::vector<float> logits = runner.step({{&sequence, ids, false}});
    expect_error(golden_name(), "first logits of five prompts, largest",
                 worst_of(logits, golden[name + ".first_logits"].as<float>()), kTolerance, name);
    EXPECT_EQ(runner.greedy(ids, 32), golden_ids(golden[name + ".greedy_ids"]));
  }
}

// BF16 rows of keys and values keep 8 bits of 24: the logits (deviation 5) move a little, not more.
// In V3.2 that can change which tokens a row selects, and its logits by far: half of the rows tell.
TEST_P(TinyModelGolden, OfficialCacheRowsStayClose) {
  const auto& [name, isa] = GetParam();
  ModelRunner runner =
      ModelRunner::open(tiny_model_path(name), {.isa = isa, .kv = KvMode::official});
  const GoldenFile golden = this->golden();
  const std::vector<int32_t> ids = golden_ids(golden["prompt.input_ids"]);
  const std::vector<float> logits = runner.logits(ids, ids.size());
  const std::span<const float> expected = golden["prompt.logits"].as<float>();
  std::vector<double> deviations;  // [rows]
  for (size_t row = 0; row < ids.size(); ++row) {
    double squares = 0;
    for (size_t i = row * runner.vocab(); i < (row + 1) * runner.vocab(); ++i) {
      squares += std::pow(double{logits[i]} - expected[i], 2);
    }
    deviations.push_back(std::sqrt(squares / static_cast<double>(runner.vocab())));
  }
  std::sort(deviations.begin(), deviations.end());
  expect_error(golden_name(), "official cache rows: logits of the median row, rms",
               deviations[deviations.size() / 2], 0.05);
  EXPECT_GT(deviations[deviations.size() / 2], 1e-4) << "the rows were not rounded";
}

INSTANTIATE_TEST_SUITE_P(AllIsas, TinyModelGolden,
                         ::testing::Combine(::testing::Values("llama", "qwen2", "qwen3",
                                                              "deepseek_v3", "deepseek_v32"),
                                            ::testing::ValuesIn(isas_of_this_machine())),
                         [](const auto& parameter) {
                           return std::get<0>(parameter.param) + "_" +
                                  std::string(kernels::isa_name(std::get<1>(parameter.param)));
                         });

}  // namespace
}  // namespace deepinfer::models
