#include "models/plan/memory_plan.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "models/model_runner.h"

namespace deepinfer::models {
namespace {

constexpr uint64_t kGigabyte = 1'000'000'000;

std::string golden_path(const std::string& name) {
  return std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/" + name;
}

PlannedModel real_model(const std::string& name) {
  std::ifstream file(golden_path("configs/" + name + "/config.json"));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return value_or_die(planned_from_config(text, name));
}

PlanRequest request_for(uint64_t memory) {
  PlanRequest request;
  request.memory = memory;
  request.rates = {
      .memory_read = 40e9, .disk_read = 2e9, .float_products = 200e9, .int8_products = 800e9};
  return request;
}

MemoryPlan plan(const PlannedModel& model, const PlanRequest& request) {
  return plan_memory(model, value_or_die(planned_cache(model.config, request.kv)), request);
}

uint64_t bytes_of(const MemoryPlan& plan, weights::Part part) {
  for (const PartBytes& bytes : plan.parts) {
    if (bytes.part == part) return bytes.bytes;
  }
  return 0;
}

// What `plan` computes from the configuration is what the opened model declares.
TEST(PlannedCache, IsTheModelsOwn) {
  for (const char* name : {"llama/llama", "llama/qwen3", "llama/deepseek_v3", "llama/deepseek_v32",
                           "deepseek_v4/flash", "deepseek_v4/pro", "deepseek_v4/quant",
                           "deepseek_v4/dspark", "deepseek_v41/base", "deepseek_v41/long"}) {
    for (const KvMode kv : {KvMode::official, KvMode::f32}) {
      SCOPED_TRACE(name);
      ModelRunner runner = ModelRunner::open(golden_path(name), {.kv = kv, .max_rows = 4});
      const auto checkpoint = value_or_die(weights::Checkpoint::open(golden_path(name)));
      const PlannedModel model = value_or_die(planned_from_checkpoint(checkpoint));
      const cache::CacheLayout planned = value_or_die(planned_cache(model.config, kv));
      EXPECT_EQ(planned.page_bytes(), runner.model().cache_layout().page_bytes());
      EXPECT_EQ(planned.frontier_bytes(), runner.model().cache_layout().frontier_bytes());
    }
  }
}

TEST(PlannedModel, IsTheSameFromTheFilesAndFromTheConfigAlone) {
  for (const char* name :
       {"deepseek_v4/quant", "deepseek_v41/base", "llama/deepseek_v32", "llama/llama"}) {
    SCOPED_TRACE(name);
    const auto checkpoint = value_or_die(weights::Checkpoint::open(golden_path(name)));
    const PlannedModel files = value_or_die(planned_from_checkpoint(checkpoint));
    const PlannedModel config =
        value_or_die(planned_from_config(*checkpoint.side_file("config.json"), "config.json"));
    const MemoryPlan a = plan(files, request_for(kGigabyte));
    const MemoryPlan b = plan(config, request_for(kGigabyte));
    EXPECT_EQ(a.tensors, checkpoint.tensors().size());
    EXPECT_EQ(a.tensors, b.tensors);
    EXPECT_EQ(a.weight_bytes, b.weight_bytes);
    ASSERT_EQ(a.parts.size(), b.parts.size());
    for (size_t i = 0; i < a.parts.size(); ++i) EXPECT_EQ(a.parts[i].bytes, b.parts[i].bytes);
  }
}

TEST(MemoryPlan, AddsUpThePublishedSizes) {
  const MemoryPlan flash = plan(real_model("deepseek-v4-flash"), request_for(64 * kGigabyte));
  EXPECT_EQ(flash.weight_bytes, 159609485896u);
  EXPECT_EQ(flash.tensors, 69187u);
  EXPECT_EQ(flash.expert_bytes, 13369344u);
  EXPECT_EQ(flash.expert_count, 43u * 256);
  EXPECT_EQ(flash.experts_per_token, 43u * 6);
  const MemoryPlan dspark =
      plan(real_model("deepseek-v4-flash-dspark"), request_for(64 * kGigabyte));
  EXPECT_EQ(dspark.weight_bytes, 166878536440u);
  const MemoryPlan pro = plan(real_model("deepseek-v4-pro"), request_for(64 * kGigabyte));
  EXPECT_EQ(pro.weight_bytes, 864704792696u);
  EXPECT_EQ(pro.expert_bytes, 35094528u);
  // 890 bytes a token in compressed rows (spec v41.md 5.1), and 4 of token classes.
  const MemoryPlan v41 = plan(real_model("deepseek-v4.1-flash"), request_for(64 * kGigabyte));
  EXPECT_DOUBLE_EQ(v41.cache_bytes_per_token, 890 + 4);
  EXPECT_EQ(bytes_of(v41, weights::Part::engram_table), (384006168ull + 384016682ull) * (256 + 8));
  const MemoryPlan v3 = plan(real_model("deepseek-v3"), request_for(64 * kGigabyte));
  EXPECT_DOUBLE_EQ(v3.cache_bytes_per_token, 61.0 * 576 * 2);
}

TEST(MemoryPlan, PartsAddUp) {
  for (const char* name : {"deepseek-v3", "deepseek-v4-flash", "deepseek-v4.1-flash"}) {
    const MemoryPlan seen = plan(real_model(name), request_for(64 * kGigabyte));
    uint64_t tensors = 0, bytes = 0;
    for (const PartBytes& part : seen.parts) {
      tensors += part.tensors;
      bytes += part.bytes;
    }
    EXPECT_EQ(tensors, seen.tensors) << name;
    EXPECT_EQ(bytes, seen.weight_bytes) << name;
    EXPECT_EQ(seen.needed_bytes, seen.weight_bytes + seen.cache_bytes + seen.workspace_bytes);
  }
}

TEST(MemoryPlan, KeepsEverythingThatFits) {
  const PlannedModel model = real_model("deepseek-v4-flash");
  const MemoryPlan probe = plan(model, request_for(kGigabyte));
  const MemoryPlan fits = plan(model, request_for(probe.needed_bytes));
  EXPECT_TRUE(fits.resident);
  EXPECT_EQ(fits.decode.bound(), Bound::memory);
  EXPECT_EQ(fits.decode.disk_seconds, 0);
  const MemoryPlan short_by_one = plan(model, request_for(probe.needed_bytes - 1));
  EXPECT_FALSE(short_by_one.resident);
  EXPECT_TRUE(short_by_one.runs);
  EXPECT_EQ(short_by_one.expert_slots, short_by_one.expert_count - 1);
  EXPECT_LT(short_by_one.hit_rate, 1);
}

TEST(MemoryPlan, StreamsWhatDoesNotFitAndSaysTheFloor) {
  const PlannedModel model = real_model("deepseek-v4-flash");
  const MemoryPlan some = plan(model, request_for(32 * kGigabyte));
  const MemoryPlan more = plan(model, request_for(64 * kGigabyte));
  EXPECT_TRUE(some.runs);
  EXPECT_EQ(some.decode.bound(), Bound::disk);
  EXPECT_GT(more.hit_rate, some.hit_rate);
  EXPECT_GT(more.decode_tokens_per_second, some.decode_tokens_per_second);
  EXPECT_TRUE(plan(model, request_for(some.floor_bytes)).runs);
  EXPECT_FALSE(plan(model, request_for(some.floor_bytes - 1)).runs);
}

TEST(MemoryPlan, LeavesEngramTablesOnDiskFirst) {
  const PlannedModel model = real_model("deepseek-v4.1-flash");
  const MemoryPlan probe = plan(model, request_for(kGigabyte));
  const uint64_t tables = bytes_of(probe, weights::Part::engram_table);
  const MemoryPlan without = plan(model, request_for(probe.needed_bytes - tables));
  EXPECT_FALSE(without.resident);
  EXPECT_TRUE(without.tables_on_disk);
  EXPECT_EQ(without.expert_slots, without.expert_count);
  EXPECT_EQ(without.hit_rate, 1.0);
  EXPECT_GT(without.decode.disk_seconds, 0);
  EXPECT_EQ(without.decode.bound(), Bound::memory);
}

// What a token reads grows with its context only where the architecture says so.
TEST(MemoryPlan, CostOfATokenStaysFlatWithContextWhereAttentionIsSparse) {
  const auto active = [](const char* name, uint64_t context) {
    PlanRequest request = request_for(1000 * kGigabyte);
    request.context = context;
    return static_cast<double>(plan(real_model(name), request).active_bytes);
  };
  for (const char* name : {"deepseek-v4-flash", "deepseek-v4.1-flash"}) {
    EXPECT_LT(active(name, 65536), 1.02 * active(name, 1024)) << name;
  }
  EXPECT_GT(active("deepseek-v3", 65536), 1.1 * active("deepseek-v3", 1024));
}

// The decoder half of V4.1 runs for the last 20 * 127 + 1 tokens of a prompt.
TEST(MemoryPlan, PromptsOfV41RunTheEncoderOnly) {
  const auto arithmetic = [](uint64_t context) {
    PlanRequest request = request_for(1000 * kGigabyte);
    request.context = context;
    return plan(real_model("deepseek-v4.1-flash"), request).prefill.arithmetic_seconds;
  };
  EXPECT_NEAR(arithmetic(2541 * 10) / arithmetic(2541), 0.55, 0.03);
}

TEST(MemoryPlan, StreamsShareTheWeights) {
  const PlannedModel model = real_model("deepseek-v4-flash");
  PlanRequest request = request_for(1000 * kGigabyte);
  const double alone = plan(model, request).decode_tokens_per_second;
  request.streams = 16;
  const double together = plan(model, request).decode_tokens_per_second;
  EXPECT_GT(together, 1.5 * alone);  // dense parts once, the union of the experts
  EXPECT_LT(together, 16 * alone);
}

}  // namespace
}  // namespace deepinfer::models
