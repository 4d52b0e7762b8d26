// What the model reports: damaged weights by place, choices, times.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "models/changed_model_test.h"

namespace deepinfer::models {
namespace {

using ::testing::HasSubstr;

// A tiny model of which one BF16 value is overwritten.
class DamagedModel : public ChangedModel {
 public:
  DamagedModel(const std::string& name, const std::string& tensor, size_t element, uint16_t code)
      : ChangedModel(tiny_model_path(name)) {
    write(tensor, 2 * element, std::string(reinterpret_cast<const char*>(&code), 2));
  }
};

constexpr uint16_t kNan = 0x7FC0;
constexpr uint16_t kInfinity = 0x7F80;

std::string forward_error(const std::string& path, kernels::Isa isa, int32_t id) {
  ModelRunner runner = ModelRunner::open(path, {.isa = isa, .threads = 2});
  cache::SequenceCache sequence = runner.new_sequence();
  const auto result = runner.try_step({{&sequence, {5, 9, id}}});
  if (result.ok()) return "no error";
  EXPECT_EQ(result.error().kind, ErrorKind::internal);
  return result.error().text();
}

struct Damage {
  std::string tensor;
  std::string where;  // what the error must say
};

TEST(LlamaFaults, ErrorNamesLayerAndOperation) {
  const Damage damages[] = {
      {"model.layers.0.self_attn.q_proj.weight", "layer 0 attention q, k, v"},
      {"model.layers.1.self_attn.k_proj.weight", "layer 1 attention q, k, v"},
      {"model.layers.1.self_attn.v_proj.weight", "layer 1 attention q, k, v"},
      {"model.layers.0.self_attn.o_proj.weight", "layer 0 attention output"},
      {"model.layers.1.mlp.gate_proj.weight", "layer 1 ffn gate and up"},
      {"model.layers.0.mlp.up_proj.weight", "layer 0 ffn gate and up"},
      {"model.layers.0.mlp.down_proj.weight", "layer 0 ffn down"},
      {"model.layers.1.mlp.down_proj.weight", "layer 1 ffn down"},
  };
  for (kernels::Isa isa : isas_of_this_machine()) {
    for (const Damage& damage : damages) {
      for (const uint16_t code : {kNan, kInfinity}) {
        const DamagedModel model("llama", damage.tensor, 70, code);
        EXPECT_THAT(forward_error(model.path(), isa, 3), HasSubstr(damage.where))
            << kernels::isa_name(isa);
      }
    }
  }
}

TEST(LlamaFaults, ErrorNamesTheIdOfADamagedEmbedding) {
  const DamagedModel model("qwen2", "model.embed_tokens.weight", 64 * 17 + 5, kNan);
  EXPECT_THAT(forward_error(model.path(), kernels::Isa::ref, 17), HasSubstr("embedding of id 17"));
  EXPECT_EQ(forward_error(model.path(), kernels::Isa::ref, 18), "no error");
}

TEST(LlamaFaults, DamagedHeadIsNamed) {
  const DamagedModel model("qwen2", "lm_head.weight", 64 * 17 + 5, kNan);
  EXPECT_THAT(forward_error(model.path(), kernels::Isa::ref, 3), HasSubstr("output head"));
}

TEST(LlamaFaults, DamagedVectorsAreRefusedAtLoad) {
  const std::pair<std::string, std::string> cases[] = {
      {"model.layers.1.post_attention_layernorm.weight", "layer 1 ffn norm"},
      {"model.layers.0.self_attn.k_proj.bias", "layer 0 attention k bias"},
      {"model.norm.weight", "output norm"},
  };
  const auto threads = value_or_die(ThreadPool::create({.threads = 1}));
  for (const auto& [tensor, role] : cases) {
    const DamagedModel model("qwen2", tensor, 3, kNan);
    const auto checkpoint = value_or_die(weights::Checkpoint::open(model.path()));
    const auto opened = open_model(checkpoint, {}, *threads);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().kind, ErrorKind::corrupt);
    EXPECT_THAT(opened.error().text(), HasSubstr(role));
    EXPECT_THAT(opened.error().text(), HasSubstr("element 3 is nan"));
  }
}

// After an error the model serves the next batch as if nothing had been.
TEST(LlamaFaults, AnErrorDoesNotStick) {
  const DamagedModel model("qwen2", "model.embed_tokens.weight", 64 * 17, kNan);
  ModelRunner runner = ModelRunner::open(model.path(), {});
  cache::SequenceCache bad = runner.new_sequence(), good = runner.new_sequence();
  EXPECT_FALSE(runner.try_step({{&bad, {17}}}).ok());
  EXPECT_TRUE(runner.try_step({{&good, {18}}}).ok());
}

TEST(OpenModel, RefusesZeroRows) {
  const auto threads = value_or_die(ThreadPool::create({.threads = 1}));
  const auto checkpoint = value_or_die(weights::Checkpoint::open(tiny_model_path("llama")));
  const auto opened = open_model(checkpoint, {.target = {}, .max_rows = 0}, *threads);
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().text(), HasSubstr("max_rows"));
}

TEST(OpenModel, ProgressReachesTheTotal) {
  const auto threads = value_or_die(ThreadPool::create({.threads = 1}));
  const auto checkpoint = value_or_die(weights::Checkpoint::open(tiny_model_path("qwen2")));
  size_t calls = 0, last_done = 0, last_total = 0;
  const auto opened = open_model(checkpoint, {}, *threads, [&](size_t done, size_t total) {
    EXPECT_GT(done, last_done);
    last_done = done;
    last_total = total;
    ++calls;
  });
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(calls, 2u * 7 + 1);
  EXPECT_EQ(last_done, last_total);
}

TEST(Llama, DeclaresItsCacheAndItsChoices) {
  ModelRunner runner = ModelRunner::open(tiny_model_path("qwen3"), {.kv = KvMode::official});
  const cache::CacheLayout& layout = runner.model().cache_layout();
  ASSERT_EQ(layout.growing.size(), 2u);
  EXPECT_EQ(layout.growing[1].bytes_per_page,
            2u * 2 * 32 * 128 * 2);  // k+v, heads, dim, tokens, BF16
  EXPECT_FALSE(runner.model().choices().empty());
  EXPECT_GT(runner.model().resident_bytes(), runner.model().weight_bytes_per_step());
}

TEST(Llama, ProfileCountsOperations) {
  ModelRunner runner = ModelRunner::open(tiny_model_path("llama"), {});
  const std::vector<int32_t> ids = {1, 2, 3, 4};
  runner.logits(ids, 4);
  EXPECT_TRUE(runner.model().take_profile().empty());
  runner.model().set_profiling(true);
  runner.logits(ids, 2);
  uint64_t qkv_calls = 0;
  double up_operations = 0;
  for (const OperationTime& time : runner.model().take_profile()) {
    if (time.name == "qkv") qkv_calls = time.calls;
    if (time.name == "ffn gate and up") up_operations = time.operations;
  }
  EXPECT_EQ(qkv_calls, 4u);                             // two steps, two layers
  EXPECT_EQ(up_operations, 2.0 * 2 * 4 * 2 * 64 * 96);  // fma, layers, rows, matrices, shape
  EXPECT_TRUE(runner.model().take_profile().empty());
}

TEST(V4Faults, ErrorNamesLayerAndOperation) {
  const std::string name = "../deepseek_v4/flash";
  const Damage damages[] = {
      {"layers.2.attn.wq_a.weight", "layer 2 attention q_a, kv"},
      {"layers.1.attn.wq_b.weight", "layer 1 attention q_b"},
      {"layers.0.attn.wo_b.weight", "layer 0 attention output"},
      {"layers.2.attn.compressor.wgate.weight", "layer 2 compressor kv, gate"},
      {"layers.1.attn.indexer.compressor.wkv.weight", "layer 1 indexer compressor kv, gate"},
      {"layers.3.ffn.gate.weight", "layer 3 router"},
      {"layers.1.ffn.shared_experts.w2.weight", "layer 1 ffn down"},
      {"head.weight", "output head"},
  };
  for (const Damage& damage : damages) {
    const DamagedModel model(name, damage.tensor, 0, kNan);
    EXPECT_THAT(forward_error(model.path(), isas_of_this_machine().back(), 7),
                HasSubstr(damage.where))
        << damage.tensor;
  }
  const DamagedModel model(name, "embed.weight", 7 * 64 + 3, kInfinity);
  EXPECT_THAT(forward_error(model.path(), kernels::Isa::ref, 7), HasSubstr("embedding of id 7"));
}

// The indexer of a layer runs once a row sees more entries than it keeps.
TEST(V4Faults, ErrorNamesTheIndexer) {
  const DamagedModel model("../deepseek_v4/flash", "layers.3.attn.indexer.weights_proj.weight", 0,
                           kNan);
  ModelRunner runner = ModelRunner::open(model.path(), {});
  cache::SequenceCache sequence = runner.new_sequence();
  ASSERT_TRUE(runner.try_step({{&sequence, std::vector<int32_t>(20, 3)}}).ok());
  const auto result = runner.try_step({{&sequence, std::vector<int32_t>(30, 3)}});
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().text(), HasSubstr("layer 3 indexer"));
}

}  // namespace
}  // namespace deepinfer::models
