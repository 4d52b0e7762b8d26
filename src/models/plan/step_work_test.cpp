// The estimator against sums by hand and by counting.

#include "models/plan/step_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "models/model_runner.h"

namespace deepinfer::models {
namespace {

TEST(StepPairs, AreTheSumsTheyStandFor) {
  for (const uint64_t a : {0u, 1u, 5u, 127u}) {
    for (const uint64_t b : {127u, 128u, 131u, 300u}) {
      double ratio4 = 0, capped = 0, window = 0, candidates = 0;
      for (uint64_t p = a; p < b; ++p) {
        const uint64_t sees = p + 1;
        ratio4 += static_cast<double>(sees / 4);
        capped += static_cast<double>(std::min<uint64_t>(sees / 2, 20));
        window += static_cast<double>(std::min<uint64_t>(sees - std::min<uint64_t>(a, 3), 16));
        // Ratio 2, blocks of 8 keys, at most 5 of them.
        candidates += 8.0 * static_cast<double>(std::min<uint64_t>((sees + 14) / 16, 5));
      }
      EXPECT_EQ(compressed_pairs(a, b, 4), ratio4);
      EXPECT_EQ(capped_pairs(a, b, 2, 20), capped);
      EXPECT_EQ(window_pairs(a, b, std::min<uint64_t>(a, 3), 16), window);
      EXPECT_EQ(candidate_pairs(a, b, 2, 8, 5), candidates);
    }
  }
}

TEST(StepWork, UnitsByFormat) {
  const StepWork work{.fp4 = 1, .fp8 = 10, .bf16 = 100, .f32 = 1000};
  EXPECT_EQ(work.operations(), 2222);
  EXPECT_EQ(work.fp8_equivalent(), 1 + 20 + 400 + 8000);
}

weights::LlamaConfig small_llama() {
  weights::LlamaConfig config;
  config.layers = 2;
  config.hidden = 8;
  config.vocab = 100;
  config.intermediate = 16;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 2;
  return config;
}

TEST(StepWork, Llama) {
  StepWork work;
  // Positions 3 and 4 see 4 and 5 tokens. A row of a layer: queries 8*8, keys and values 2 * 8*4,
  // output 8*8, feed-forward 3*8*16 = 576; pairs 2 * 4*2 each, 9 of them.
  StepEstimator(small_llama()).add({.first = 3, .rows = 2, .logits_rows = 1}, work);
  EXPECT_EQ(work.bf16, 2 * (2 * 576 + 16 * 9) + 8 * 100);
  EXPECT_EQ(work.operations(), 2 * work.bf16);
}

TEST(StepWork, ChunksAddUpToThePrompt) {
  const StepEstimator estimator(small_llama());
  EXPECT_EQ(estimator.prompt(37, 8).bf16, estimator.prompt(37, 100).bf16);
}

weights::DeepseekV41Config small_v41() {
  weights::DeepseekV41Config config;
  config.layers = 2;
  config.hidden = 10;
  config.vocab = 50;
  config.heads = 2;
  config.head_dim = 4;
  config.q_lora = 3;
  config.o_lora = 5;
  config.o_groups = 2;
  config.window = 6;
  config.ratios = {2, 1};
  config.kv_sources = {0, 1};
  config.index_sources = {0, 1};
  config.moe = {.experts = 8, .shared = 1, .per_token = 2, .width = 7, .shared_width = 7};
  config.indexer = {.heads = 2, .dim = 3, .topk = 4};
  config.hyper.streams = 2;
  config.quantization.matrices = weights::MatrixStorage::fp8_32;
  return config;
}

// One decoding row at position 9: it sees 10 tokens, 5 entries of ratio 2 and 10 of ratio 1.
TEST(StepWork, DeepseekV41ByHand) {
  const StepWork work = StepEstimator(small_v41()).token(9);
  // A layer: 10 * (3 + 4) + 3 * (8 + 6) + 8 * 5 + 2 * 5 * 10, experts 3 * 10 * 7 * 3.
  EXPECT_EQ(work.fp8, 2 * (70 + 42 + 40 + 100 + 630));
  // Indexer 2 * 3 for 5 and for 10 keys.
  EXPECT_EQ(work.fp4, 6 * (5 + 10));
  // Layer 0: entries 10 * 4 * 2, key 4 * 3, index weights 10 * 2, window 2 * 8 * 6, entries 2 * 8 *
  // 4, router 10 * 8; layer 1 the same with entries 10 * 4. Logits 10 * 50.
  EXPECT_EQ(work.bf16, (80 + 12 + 20 + 96 + 64 + 80) + (40 + 12 + 20 + 96 + 64 + 80) + 500);
  // Two mixes a layer: 2*2*4*10 + 2*10 + 2*3*10; the first one less, the last one more.
  EXPECT_EQ(work.f32, 2 * 2 * (160 + 20 + 60));
}

TEST(StepWork, RowsBelowTheDecoderOnlyFeedItsEntries) {
  const StepEstimator estimator(small_v41());
  StepWork all, tail;
  estimator.add({.first = 0, .rows = 100, .logits_rows = 1}, all);
  estimator.add({.first = 0, .rows = 100, .logits_rows = 1, .start = {.decoder = 90}}, tail);
  // 90 rows of the decoder layer: 252 of its matrices and 630 of its experts.
  EXPECT_EQ(all.fp8 - tail.fp8, 90 * (70 + 42 + 40 + 100 + 630));
  EXPECT_LT(tail.operations(), 0.6 * all.operations());
}

TEST(StepWork, ExpertsTouchedGrowToAll) {
  EXPECT_NEAR(experts_touched(384, 6, 1), 6, 1e-9);
  EXPECT_NEAR(experts_touched(4, 1, 2), 4 * (1 - 9.0 / 16), 1e-12);
  EXPECT_NEAR(experts_touched(384, 6, 1e5), 384, 1e-3);
  EXPECT_EQ(experts_touched(0, 0, 10), 0);
}

PlannedModel real_model(const std::string& name) {
  const std::string folder = std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/configs/";
  std::ifstream file(folder + name + "/config.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return value_or_die(planned_from_config(text, name));
}

// A token multiplies with the weights that its experts and matrices hold: published counts of
// active parameters, without embeddings.
TEST(StepWork, TokensOfRealModelsTouchTheirActiveParameters) {
  const auto active = [](const std::string& name) {
    return StepEstimator(real_model(name).config).token(0).operations() / 2 / 1e9;
  };
  EXPECT_NEAR(active("deepseek-v3"), 37, 2);
  EXPECT_NEAR(active("deepseek-v4-flash"), 13, 1.5);
}

// The model counts its matrix products itself.
TEST(StepWork, AgreesWithTheProfileOfALlama) {
  const std::string path = std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/llama/llama";
  const auto checkpoint = value_or_die(weights::Checkpoint::open(path));
  const PlannedModel planned = value_or_die(planned_from_checkpoint(checkpoint));
  const auto& config = std::get<weights::LlamaConfig>(planned.config);
  const double matrices = StepEstimator(config).token(0).operations() -
                          4.0 * config.layers * config.heads * config.head_dim;
  double weights_held = 0;
  for (const weights::TensorSpec& tensor : planned.tensors) {
    if (tensor.shape.rank() == 2) weights_held += static_cast<double>(tensor.shape.elements());
  }
  const double embedding = static_cast<double>(config.vocab) * config.hidden;
  EXPECT_EQ(matrices, 2 * (weights_held - (config.tied_embeddings ? 0 : embedding)));
}

}  // namespace
}  // namespace deepinfer::models
