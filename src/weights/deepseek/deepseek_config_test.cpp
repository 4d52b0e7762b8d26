#include "weights/deepseek/deepseek_config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "weights/deepseek/engram_primes.h"
#include "weights/tiny_models.h"

namespace deepinfer::weights {
namespace {

using nlohmann::json;

std::string golden_text(const std::string& name) {
  std::ifstream file(golden_path(name));
  return {std::istreambuf_iterator<char>(file), {}};
}

json real_config(const std::string& name) {
  return json::parse(golden_text("configs/" + name + "/config.json"));
}

// The reader of whichever family the text names.
Result<ModelConfig> parse(const json& config) {
  const std::string text = config.dump();
  switch (TRY(parse_hf_family(text, "c.json"))) {
    case Family::deepseek_v3:
    case Family::deepseek_v32:
      return TRY(parse_deepseek_v3_config(text, "c.json"));
    case Family::deepseek_v4:
      return TRY(parse_deepseek_v4_config(text, "c.json"));
    default:
      return TRY(parse_deepseek_v41_config(text, "c.json"));
  }
}

TEST(DeepseekConfig, ReadsV41Flash) {
  const DeepseekV41Config config =
      parse_deepseek_v41_config(real_config("deepseek-v4.1-flash").dump(), "c").value();
  EXPECT_EQ(config.family, Family::deepseek_v41);
  EXPECT_EQ(config.layers, 40u);
  EXPECT_EQ(config.hidden, 5120u);
  EXPECT_EQ(config.norm_eps, 1e-20);
  EXPECT_EQ(config.ratios.size(), 40u);
  EXPECT_EQ(config.first_decoder_layer(), 20u);
  EXPECT_EQ(config.kv_sources, (std::vector<uint32_t>{2, 8, 14, 20}));
  EXPECT_EQ(config.kv_source_of(13), 1u);
  EXPECT_EQ(config.index_source_of(39), 7u);
  EXPECT_EQ(config.index_source_of(20), 3u);
  EXPECT_EQ(config.candidate_source, 20u);
  EXPECT_EQ(config.moe.experts, 384u);
  EXPECT_EQ(config.moe.shared_width, 2304u);
  EXPECT_EQ(config.moe.clamp, 10.0);
  EXPECT_EQ(config.quantization.matrices, MatrixStorage::fp8_32);
  EXPECT_TRUE(config.quantization.fp4_experts);
  EXPECT_EQ(config.compress_rope.scaling, RopeScaling::yarn);
  EXPECT_EQ(config.compress_rope.theta, 160000.0);
  EXPECT_EQ(config.compress_rope.attention_factor, 1.0);
  EXPECT_EQ(config.rope.scaling, RopeScaling::none);
  EXPECT_EQ(config.dspark.stages, 3u);
  EXPECT_EQ(config.dspark.experts, 128u);
  EXPECT_EQ(config.image_token, 129264u);
  EXPECT_EQ(config.vision->layers, 32u);
  EXPECT_EQ(engram_rows(config.engram), (std::vector<uint64_t>{384006168, 384016682}));
}

TEST(DeepseekConfig, ReadsV4FlashProAndTheirDrafters) {
  const auto read = [](const char* name) {
    return parse_deepseek_v4_config(real_config(name).dump(), "c").value();
  };
  const DeepseekV4Config flash = read("deepseek-v4-flash");
  EXPECT_EQ(flash.layers, 43u);
  EXPECT_EQ(flash.ratios.size(), 43u);
  EXPECT_EQ(flash.ratios.back(), 4u);
  EXPECT_EQ(flash.hash_layers, 3u);
  EXPECT_TRUE(flash.mtp);
  EXPECT_EQ(flash.dspark.stages, 0u);
  EXPECT_EQ(flash.quantization.matrices, MatrixStorage::fp8_128);
  const DeepseekV4Config dspark = read("deepseek-v4-flash-dspark");
  EXPECT_FALSE(dspark.mtp);
  EXPECT_EQ(dspark.dspark.stages, 3u);
  EXPECT_EQ(dspark.dspark.experts, 256u);
  EXPECT_EQ(dspark.ratios, flash.ratios);
  const DeepseekV4Config pro = read("deepseek-v4-pro");
  EXPECT_EQ(pro.moe.experts, 384u);
  EXPECT_EQ(pro.moe.scaling, 2.5);
  EXPECT_EQ(pro.o_groups, 16u);
}

TEST(DeepseekConfig, ReadsV3WithItsYarnInTheSoftmax) {
  const DeepseekV3Config config =
      parse_deepseek_v3_config(real_config("deepseek-v3").dump(), "c").value();
  EXPECT_EQ(config.dense_layers, 3u);
  EXPECT_EQ(config.moe.groups, 8u);
  EXPECT_EQ(config.moe.groups_kept, 4u);
  EXPECT_EQ(config.next_layers, 1u);
  EXPECT_EQ(config.rope.attention_factor, 1.0);
  const double all = 0.1 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(config.softmax_scale, all * all / std::sqrt(192.0));
  EXPECT_EQ(config.quantization.matrices, MatrixStorage::fp8_128_f32);
  EXPECT_EQ(config.index_heads, 0u);
}

TEST(DeepseekConfig, ReadsTheGoldens) {
  for (const char* name : {"llama/deepseek_v3", "llama/deepseek_v32", "deepseek_v4/flash",
                           "deepseek_v4/pro", "deepseek_v4/long", "deepseek_v4/quant",
                           "deepseek_v4/dspark", "deepseek_v41/base", "deepseek_v41/long"}) {
    SCOPED_TRACE(name);
    const Checkpoint checkpoint = Checkpoint::open(golden_path(name)).value();
    const Result<ModelConfig> config = read_model_config(checkpoint);
    ASSERT_TRUE(config.ok()) << config.error().text();
    EXPECT_EQ(config.value().family, read_family(checkpoint).value());
  }
}

TEST(DeepseekConfig, FindsTheDrafterByTheTensors) {
  const auto read = [](const char* name) {
    return read_deepseek_v4_config(Checkpoint::open(golden_path(name)).value()).value();
  };
  EXPECT_TRUE(read("deepseek_v4/flash").mtp);
  EXPECT_FALSE(read("deepseek_v4/long").mtp);
  EXPECT_EQ(read("deepseek_v4/dspark").dspark.stages, 3u);
}

TEST(DeepseekConfig, ReadsATextOnlyV41AtTheTop) {
  json nested = real_config("deepseek-v4.1-flash");
  const DeepseekV41Config whole = parse_deepseek_v41_config(nested.dump(), "c").value();
  json flat = nested["text_config"];
  flat["architectures"] = nested["architectures"];
  flat["model_type"] = "deepseek_v41_text";
  flat["bos_token_id"] = 0;
  flat["eos_token_id"] = 1;
  DeepseekV41Config expected = whole;
  expected.vision.reset();
  expected.image_token.reset();
  expected.quantization = {};
  EXPECT_EQ(parse_deepseek_v41_config(flat.dump(), "c").value(), expected);
  flat["quantization_config"] = nested["quantization_config"];
  expected.quantization = whole.quantization;
  EXPECT_EQ(parse_deepseek_v41_config(flat.dump(), "c").value(), expected);
}

TEST(DeepseekConfig, TakesNoQuantizationForPlainWeights) {
  for (const char* name : {"deepseek-v3", "deepseek-v4-flash", "deepseek-v4.1-flash"}) {
    json config = real_config(name);
    config.erase("quantization_config");
    config.erase("expert_dtype");
    EXPECT_TRUE(parse(config).ok()) << name;
  }
  json base = real_config("deepseek-v4-flash");
  base.erase("expert_dtype");
  const DeepseekV4Config config = parse_deepseek_v4_config(base.dump(), "c").value();
  EXPECT_EQ(config.quantization.matrices, MatrixStorage::fp8_128);
  EXPECT_FALSE(config.quantization.fp4_experts);
}

// --------------------------------------------------------------------------- bad input
// Every field that a reader reads, and how: `!` in front of those that may be absent.
struct FieldTable {
  const char* file;
  const char* inside;  // where most fields are; "" for the top
  std::vector<const char*> counts;
  std::vector<const char*> numbers;
  std::vector<const char*> flags;
  std::vector<const char*> texts;
  std::vector<const char*> lists;
};

const FieldTable kTables[] = {
    {"deepseek-v3",
     "",
     {"vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size",
      "num_hidden_layers", "num_attention_heads", "n_routed_experts", "num_experts_per_tok",
      "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "n_group", "topk_group",
      "max_position_embeddings", "!q_lora_rank", "!num_key_value_heads"},
     {"routed_scaling_factor", "rms_norm_eps", "rope_theta", "!moe_layer_freq"},
     {"!norm_topk_prob", "!tie_word_embeddings", "!attention_bias"},
     {"!scoring_func", "!topk_method", "!hidden_act"},
     {}},
    {"deepseek-v4-flash-dspark",
     "",
     {"vocab_size",
      "hidden_size",
      "num_hidden_layers",
      "num_attention_heads",
      "head_dim",
      "qk_rope_head_dim",
      "q_lora_rank",
      "o_lora_rank",
      "o_groups",
      "moe_intermediate_size",
      "n_routed_experts",
      "num_experts_per_tok",
      "sliding_window",
      "index_n_heads",
      "index_head_dim",
      "index_topk",
      "hc_mult",
      "hc_sinkhorn_iters",
      "max_position_embeddings",
      "dspark_markov_rank"},
     {"routed_scaling_factor", "swiglu_limit", "rms_norm_eps", "hc_eps", "rope_theta",
      "compress_rope_theta", "n_shared_experts", "!num_key_value_heads"},
     {"!norm_topk_prob", "!tie_word_embeddings", "!attention_bias"},
     {"!scoring_func", "!topk_method", "!hidden_act"},
     {"compress_ratios", "dspark_target_layer_ids"}},
    {"deepseek-v4.1-flash",
     "text_config",
     {"vocab_size",
      "hidden_size",
      "num_hidden_layers",
      "num_attention_heads",
      "head_dim",
      "qk_rope_head_dim",
      "q_lora_rank",
      "o_lora_rank",
      "o_groups",
      "moe_intermediate_size",
      "n_routed_experts",
      "num_experts_per_tok",
      "sliding_window",
      "index_n_heads",
      "index_head_dim",
      "index_topk",
      "candidate_topk_blocks",
      "candidate_block_size",
      "hc_mult",
      "hc_sinkhorn_iters",
      "engram_max_ngram_size",
      "engram_vocab_size",
      "engram_n_heads",
      "engram_head_dim",
      "engram_compressed_vocab_size",
      "dspark_block_size",
      "dspark_markov_rank",
      "dspark_n_routed_experts",
      "dspark_num_experts_per_tok",
      "max_position_embeddings"},
     {"routed_scaling_factor", "swiglu_limit", "rms_norm_eps", "hc_eps", "rope_theta",
      "compress_rope_theta", "n_shared_experts", "!num_key_value_heads"},
     {"!norm_topk_prob", "!tie_word_embeddings", "!attention_bias", "!use_fp4_sparse_kv",
      "!hc_shifted", "!dspark_target_attn_input"},
     {"!scoring_func", "!topk_method", "!hidden_act"},
     {"compress_ratios", "kv_source_layer_ids", "index_source_layer_ids", "dspark_target_layer_ids",
      "!engram_layer_ids", "!engram_num_embeddings", "!index_k_source_layer_ids"}}};

void expect_refused(const json& config, const std::string& key, const std::string& part) {
  const Result<ModelConfig> read = parse(config);
  ASSERT_FALSE(read.ok()) << key << " with " << part;
  const std::string text = read.error().text();
  EXPECT_NE(text.find(key), std::string::npos) << text;
  EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_EQ(text.find("c.json"), 0u) << text;
}

void break_field(const FieldTable& table, const char* field, const std::vector<json>& wrong) {
  const bool optional = field[0] == '!';
  const std::string key = optional ? field + 1 : field;
  const json whole = real_config(table.file);
  const auto with = [&](const json& value) {
    json config = whole;
    json& inside = *table.inside != '\0' ? config[table.inside] : config;
    if (value.is_null()) {
      inside.erase(key);
    } else {
      inside[key] = value;
    }
    return config;
  };
  if (optional) {
    const Result<ModelConfig> read = parse(with(nullptr));
    EXPECT_TRUE(read.ok()) << key << ": " << read.error().text();
  } else {
    expect_refused(with(nullptr), key, "missing");
  }
  for (const json& value : wrong) {
    const std::string shown = value.is_string() ? value.get<std::string>() : value.dump();
    expect_refused(with(value), key, value.is_structured() ? "" : shown);
  }
}

TEST(DeepseekConfig, RefusesEveryFieldThatIsMissingOrOfTheWrongType) {
  const json object = json::object({{"a", 1}});
  for (const FieldTable& table : kTables) {
    SCOPED_TRACE(table.file);
    ASSERT_TRUE(parse(real_config(table.file)).ok())
        << parse(real_config(table.file)).error().text();
    for (const char* key : table.counts) {
      break_field(table, key, {"7", -1, 0, 1.5, true, 4294967296123, json::array({1}), object});
    }
    for (const char* key : table.numbers) {
      break_field(table, key, {"7", true, -1.5, json::array({1}), object});
    }
    for (const char* key : table.flags) break_field(table, key, {"true", 1, json::array({true})});
    for (const char* key : table.texts) break_field(table, key, {"other", 1, true, object});
    for (const char* key : table.lists) {
      break_field(table, key,
                  {"1", 1, object, json::array({-1}), json::array({"a"}), json::array({1.5}),
                   json::array({70000})});
    }
  }
}

TEST(DeepseekConfig, RefusesEveryContradictionByName) {
  for (const json& line : broken_files("deepseek_config.jsonl")) {
    SCOPED_TRACE(line["name"]);
    json config = real_config(line["base"]);
    config.merge_patch(line["patch"]);
    expect_error(parse(config), line["kind"].get<std::string>(), line["error"]);
  }
}

TEST(DeepseekConfig, RefusesTextsThatAreNoObjects) {
  for (const char* text : {"", "{", "[]", "3", "{\"a\":\xff}"}) {
    expect_error(parse_hf_family(text, "c.json"), "corrupt", {"c.json", "not a JSON object"});
    expect_error(parse_deepseek_v41_config(text, "c.json"), "corrupt", {"not a JSON object"});
  }
  const std::string v4 = real_config("deepseek-v4-pro").dump();
  expect_error(parse_deepseek_v41_config(v4, "c"), "unsupported", {"deepseek_v4", "deepseek_v41"});
  expect_error(parse_deepseek_v3_config(v4, "c"), "unsupported", {"deepseek_v4", "deepseek_v3"});
  const std::string v3 = real_config("deepseek-v3").dump();
  expect_error(parse_deepseek_v4_config(v3, "c"), "unsupported", {"deepseek_v3", "deepseek_v4"});
}

}  // namespace
}  // namespace deepinfer::weights
