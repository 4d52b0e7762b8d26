#pragma once

// The same small model as the files of both containers, and the lines of tests/golden/broken_files.
//
// Threads: plain values.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "weights/tiny_files.h"

namespace deepinfer::weights {

inline std::string golden_path(const std::string& name) {
  return std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/" + name;
}

inline std::vector<nlohmann::json> broken_files(const std::string& name) {
  std::ifstream file(golden_path("broken_files/" + name));
  std::vector<nlohmann::json> cases;
  for (std::string line; std::getline(file, line);) cases.push_back(nlohmann::json::parse(line));
  EXPECT_FALSE(cases.empty()) << name;
  return cases;
}

// One layer; hidden 64, 4 heads of 16, 2 key-value heads, intermediate 96, vocabulary 32.
struct TinyModel {
  std::string family = "llama";
  bool tied = true;
  bool qkv_bias = false;
  bool output_bias = false;
  bool qk_norm = false;
  nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                           {"hidden_act", "silu"},
                           {"hidden_size", 64},
                           {"intermediate_size", 96},
                           {"num_hidden_layers", 1},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"head_dim", 16},
                           {"vocab_size", 32},
                           {"max_position_embeddings", 128},
                           {"rms_norm_eps", 1e-5},
                           {"rope_theta", 500000.0},
                           {"tie_word_embeddings", true},
                           {"bos_token_id", 1},
                           {"eos_token_id", 2}};

  std::vector<TinyTensor> hf_tensors() const { return tensors(true); }
  std::vector<TinyTensor> gguf_tensors() const { return tensors(false); }

  // The keys of a GGUF file that say what `config` says.
  GgufBuilder gguf_metadata() const {
    GgufBuilder gguf;
    const std::string prefix = family + ".";
    gguf.text("general.architecture", family)
        .u32(prefix + "block_count", 1)
        .u32(prefix + "embedding_length", 64)
        .u32(prefix + "feed_forward_length", 96)
        .u32(prefix + "attention.head_count", 4)
        .u32(prefix + "attention.head_count_kv", 2)
        .u32(prefix + "attention.key_length", 16)
        .u32(prefix + "attention.value_length", 16)
        .u32(prefix + "rope.dimension_count", 16)
        .u32(prefix + "context_length", 128)
        .u32(prefix + "vocab_size", 32)
        .f32(prefix + "attention.layer_norm_rms_epsilon", 1e-5f)
        .f32(prefix + "rope.freq_base", 500000.0f)
        .u32("tokenizer.ggml.bos_token_id", 1)
        .u32("tokenizer.ggml.eos_token_id", 2);
    return gguf;
  }
  std::string gguf_file() const {
    GgufBuilder gguf = gguf_metadata();
    for (const TinyTensor& tensor : gguf_tensors()) gguf.tensor(tensor);
    return gguf.build();
  }

 private:
  std::vector<TinyTensor> tensors(bool hf) const {
    std::vector<TinyTensor> list;
    const auto add = [&](const char* hf_name, const char* gguf_name, std::vector<uint64_t> shape) {
      const DType dtype = shape.size() == 1 ? DType::f32 : DType::bf16;
      const char fill = static_cast<char>(list.size() + 1);
      list.push_back({hf ? hf_name : gguf_name, dtype, std::move(shape), fill});
    };
    const std::string hf_layer = "model.layers.0.";
    const auto add_layer = [&](const char* hf_name, const char* gguf_name,
                               std::vector<uint64_t> shape) {
      add((hf_layer + hf_name).c_str(), (std::string("blk.0.") + gguf_name).c_str(),
          std::move(shape));
    };
    add("model.embed_tokens.weight", "token_embd.weight", {32, 64});
    add("model.norm.weight", "output_norm.weight", {64});
    if (!tied) add("lm_head.weight", "output.weight", {32, 64});
    add_layer("input_layernorm.weight", "attn_norm.weight", {64});
    add_layer("self_attn.q_proj.weight", "attn_q.weight", {64, 64});
    add_layer("self_attn.k_proj.weight", "attn_k.weight", {32, 64});
    add_layer("self_attn.v_proj.weight", "attn_v.weight", {32, 64});
    add_layer("self_attn.o_proj.weight", "attn_output.weight", {64, 64});
    if (qkv_bias) {
      add_layer("self_attn.q_proj.bias", "attn_q.bias", {64});
      add_layer("self_attn.k_proj.bias", "attn_k.bias", {32});
      add_layer("self_attn.v_proj.bias", "attn_v.bias", {32});
    }
    if (output_bias) add_layer("self_attn.o_proj.bias", "attn_output.bias", {64});
    if (qk_norm) {
      add_layer("self_attn.q_norm.weight", "attn_q_norm.weight", {16});
      add_layer("self_attn.k_norm.weight", "attn_k_norm.weight", {16});
    }
    add_layer("post_attention_layernorm.weight", "ffn_norm.weight", {64});
    add_layer("mlp.gate_proj.weight", "ffn_gate.weight", {96, 64});
    add_layer("mlp.up_proj.weight", "ffn_up.weight", {96, 64});
    add_layer("mlp.down_proj.weight", "ffn_down.weight", {64, 96});
    return list;
  }
};

inline std::string write_hf(const TempFolder& folder, const TinyModel& model) {
  folder.write("config.json", model.config.dump());
  folder.write("model.safetensors", safetensors_file(model.hf_tensors()));
  return folder.path();
}

}  // namespace deepinfer::weights
