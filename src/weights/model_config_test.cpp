#include "weights/model_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "weights/config_reader.h"
#include "weights/deepseek/deepseek_config.h"
#include "weights/gguf/gguf.h"
#include "weights/tiny_models.h"

namespace deepinfer::weights {
namespace {

std::string read_golden(const std::string& name) {
  std::ifstream file(golden_path(name));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Metadata tiny_metadata() {
  const std::string file = TinyModel().gguf_metadata().build();
  return parse_gguf(as_bytes(file), file.size(), "m.gguf").value().metadata;
}

MetadataValue metadata_of(const nlohmann::json& value) {
  if (value.is_boolean()) return MetadataValue(std::in_place_type<bool>, value.get<bool>());
  if (value.is_number_unsigned()) {
    return MetadataValue(std::in_place_type<uint64_t>, value.get<uint64_t>());
  }
  if (value.is_number_integer()) {
    return MetadataValue(std::in_place_type<int64_t>, value.get<int64_t>());
  }
  if (value.is_number()) return MetadataValue(std::in_place_type<double>, value.get<double>());
  if (value.is_string()) {
    return MetadataValue(std::in_place_type<std::string>, value.get<std::string>());
  }
  if (value.at(0).is_string()) return value.get<std::vector<std::string>>();
  return value.get<std::vector<int64_t>>();
}

TEST(LlamaConfig, ReadsTheGoldens) {
  const LlamaConfig llama =
      read_llama_config(Checkpoint::open(golden_path("llama/llama")).value()).value();
  EXPECT_EQ(llama.family, Family::llama);
  EXPECT_EQ(llama.layers, 2u);
  EXPECT_EQ(llama.head_dim, 16u);
  EXPECT_TRUE(llama.tied_embeddings);
  EXPECT_EQ(llama.rope.scaling, RopeScaling::llama3);
  EXPECT_EQ(llama.rope.factor, 8.0);
  EXPECT_EQ(llama.rope.original_context, 32.0);
  EXPECT_EQ(llama.norm_eps, 1e-5);
  EXPECT_EQ(llama.eos_ids, std::vector<uint32_t>{1});
  const LlamaConfig qwen2 =
      read_llama_config(Checkpoint::open(golden_path("llama/qwen2")).value()).value();
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.output_bias);
  EXPECT_FALSE(qwen2.tied_embeddings);
  const LlamaConfig qwen3 =
      read_llama_config(Checkpoint::open(golden_path("llama/qwen3")).value()).value();
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_EQ(qwen3.head_dim, 32u);
}

TEST(LlamaConfig, NamesFamiliesThatAreNotIts) {
  for (const auto& entry : std::filesystem::directory_iterator(golden_path("configs"))) {
    const std::string folder = entry.path().filename().string();
    const std::string text = read_golden("configs/" + folder + "/config.json");
    const Family family = parse_hf_family(text, folder).value();
    expect_error(parse_hf_llama_config(text, folder), "unsupported",
                 {folder, std::string(family_name(family)), "expected llama"});
  }
}

TEST(LlamaConfig, IsTheSameFromBothContainers) {
  struct Case {
    const char* family;
    const char* architecture;
    bool tied, qkv_bias, output_bias, qk_norm;
  };
  for (const Case& c : {Case{"llama", "LlamaForCausalLM", true, false, false, false},
                        Case{"llama", "LlamaForCausalLM", false, true, true, false},
                        Case{"qwen2", "Qwen2ForCausalLM", false, true, false, false},
                        Case{"qwen3", "Qwen3ForCausalLM", true, false, false, true}}) {
    SCOPED_TRACE(std::string(c.architecture) + (c.tied ? " tied" : ""));
    const TempFolder folder;
    TinyModel model;
    model.family = c.family;
    model.tied = c.tied;
    model.qkv_bias = c.qkv_bias;
    model.output_bias = c.output_bias;
    model.qk_norm = c.qk_norm;
    model.config["architectures"] = {c.architecture};
    model.config["tie_word_embeddings"] = c.tied;
    if (c.output_bias) model.config["attention_bias"] = true;
    const Result<LlamaConfig> hf =
        read_llama_config(Checkpoint::open(write_hf(folder, model)).value());
    ASSERT_TRUE(hf.ok()) << hf.error().text();
    const Result<LlamaConfig> gguf =
        read_llama_config(Checkpoint::open(folder.write("m.gguf", model.gguf_file())).value());
    ASSERT_TRUE(gguf.ok()) << gguf.error().text();
    EXPECT_EQ(hf.value(), gguf.value());
    EXPECT_EQ(hf.value().norm_eps, 1e-5);
    EXPECT_EQ(hf.value().qkv_bias, c.qkv_bias);
  }
}

TEST(LlamaConfig, ScalesRopeTheSameFromBothContainers) {
  TinyModel model;
  model.config["rope_scaling"] = {{"rope_type", "yarn"},
                                  {"factor", 4.0},
                                  {"original_max_position_embeddings", 32},
                                  {"beta_fast", 16}};
  Metadata metadata = tiny_metadata();
  metadata.insert_or_assign("llama.rope.scaling.type", metadata_of("yarn"));
  metadata.insert_or_assign("llama.rope.scaling.factor", metadata_of(4.0));
  metadata.insert_or_assign("llama.rope.scaling.original_context_length", metadata_of(32u));
  metadata.insert_or_assign("llama.rope.scaling.yarn_beta_fast", metadata_of(16.0));
  const RopeConfig yarn = parse_gguf_llama_config(metadata, "m.gguf").value().rope;
  EXPECT_EQ(parse_hf_llama_config(model.config.dump(), "c").value().rope, yarn);
  EXPECT_DOUBLE_EQ(yarn.attention_factor, 0.1 * std::log(4.0) + 1.0);
  metadata.insert_or_assign("llama.rope.scaling.attn_factor", metadata_of(0.5));
  EXPECT_DOUBLE_EQ(parse_gguf_llama_config(metadata, "m.gguf").value().rope.attention_factor,
                   0.5 * yarn.attention_factor);

  model.config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  metadata = tiny_metadata();
  metadata.insert_or_assign("llama.rope.scale_linear", metadata_of(2.0));
  const RopeConfig linear = parse_gguf_llama_config(metadata, "m.gguf").value().rope;
  EXPECT_EQ(linear.scaling, RopeScaling::linear);
  EXPECT_EQ(parse_hf_llama_config(model.config.dump(), "c").value().rope, linear);
}

TEST(LlamaConfig, ReadsYarnsAttentionFactor) {
  TinyModel model;
  nlohmann::json& scaling = model.config["rope_scaling"];
  scaling = {{"rope_type", "yarn"}, {"factor", 40.0}, {"mscale", 1.0}, {"mscale_all_dim", 0.5}};
  const auto factor = [&] {
    return parse_hf_llama_config(model.config.dump(), "c").value().rope.attention_factor;
  };
  EXPECT_DOUBLE_EQ(factor(), (0.1 * std::log(40.0) + 1) / (0.05 * std::log(40.0) + 1));
  scaling["attention_factor"] = 1.25;
  EXPECT_DOUBLE_EQ(factor(), 1.25);
  EXPECT_EQ(parse_hf_llama_config(model.config.dump(), "c").value().rope.original_context, 128.0);
}

TEST(LlamaConfig, ReadsRopeParametersOfNewerFiles) {
  TinyModel model;
  const LlamaConfig old = parse_hf_llama_config(model.config.dump(), "c").value();
  model.config.erase("rope_theta");
  model.config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500000.0}};
  EXPECT_EQ(parse_hf_llama_config(model.config.dump(), "c").value(), old);
}

TEST(LlamaConfig, TakesRopeFactorsFromTheirTensor) {
  const TempFolder folder;
  const TinyModel model;
  const auto open = [&](const TinyTensor& factors) {
    GgufBuilder gguf = model.gguf_metadata();
    for (const TinyTensor& tensor : model.gguf_tensors()) gguf.tensor(tensor);
    gguf.tensor(factors);
    return read_llama_config(Checkpoint::open(folder.write("m.gguf", gguf.build())).value());
  };
  float value = 0;
  std::memset(&value, 0x40, sizeof(value));
  EXPECT_EQ(open({"rope_freqs.weight", DType::f32, {8}, 0x40}).value().rope.freq_factors,
            std::vector<float>(8, value));
  expect_error(open({"rope_freqs.weight", DType::f32, {9}, 0x40}), "corrupt",
               {"rope_freqs.weight", "shape 9", "shape 8"});
  expect_error(open({"rope_freqs.weight", DType::f32, {8}, '\0'}), "corrupt",
               {"rope_freqs.weight", "value 0 is 0"});
}

TEST(LlamaConfig, AddsTheEndsOfTheGenerationConfig) {
  const TempFolder folder;
  write_hf(folder, TinyModel());
  folder.write("generation_config.json", R"({"eos_token_id": [7, 2]})");
  const auto read = [&] { return read_llama_config(Checkpoint::open(folder.path()).value()); };
  EXPECT_EQ(read().value().eos_ids, (std::vector<uint32_t>{2, 7}));
  folder.write("generation_config.json", R"({"eos_token_id": 32})");
  expect_error(read(), "corrupt", {"generation_config.json", "32"});
}

TEST(LlamaConfig, ConfirmsWithTheTensors) {
  const auto read = [](const TinyModel& model) {
    const TempFolder folder;
    return read_llama_config(Checkpoint::open(write_hf(folder, model)).value());
  };
  TinyModel model;
  model.config["hidden_size"] = 128;
  expect_error(read(model), "corrupt",
               {"model.embed_tokens.weight", "file has 32x64, config says 32x128"});
  model = TinyModel();
  model.config["tie_word_embeddings"] = false;
  expect_error(read(model), "corrupt", {"lm_head.weight", "is missing", "tie_word_embeddings"});
  model = TinyModel();
  model.tied = false;
  expect_error(read(model), "corrupt", {"lm_head.weight", "differs from the embedding"});
  model = TinyModel();
  model.qkv_bias = true;
  expect_error(read(model), "corrupt", {"q_proj.bias", "is there"});
  model = TinyModel();
  model.config["attention_bias"] = true;
  expect_error(read(model), "corrupt", {"q_proj.bias", "is missing"});
}

TEST(LlamaConfig, RefusesEveryBrokenHfConfigByName) {
  for (const nlohmann::json& line : broken_files("hf_config.jsonl")) {
    SCOPED_TRACE(line["name"]);
    const std::string base = line.value("base", "llama");
    nlohmann::json config = nlohmann::json::parse(read_golden("llama/" + base + "/config.json"));
    config.merge_patch(line["patch"]);
    expect_error(parse_hf_llama_config(config.dump(), "c.json"), line["kind"].get<std::string>(),
                 line["error"]);
  }
  for (const char* text : {"", "{", "[]", "3", "{\"a\":\xff}"}) {
    expect_error(parse_hf_llama_config(text, "c.json"), "corrupt", {"c.json", "not a JSON object"});
  }
}

TEST(LlamaConfig, RefusesEveryBrokenGgufConfigByName) {
  for (const nlohmann::json& line : broken_files("gguf_config.jsonl")) {
    SCOPED_TRACE(line["name"]);
    Metadata metadata = tiny_metadata();
    metadata.insert_or_assign("llama.vocab_size", metadata_of(512u));
    for (const auto& [key, value] : line["patch"].items()) {
      metadata.erase(key);
      if (!value.is_null()) metadata.emplace(key, metadata_of(value));
    }
    expect_error(parse_gguf_llama_config(metadata, "m.gguf"), line["kind"].get<std::string>(),
                 line["error"]);
  }
}

}  // namespace
}  // namespace deepinfer::weights
