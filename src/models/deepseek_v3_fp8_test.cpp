// V3 from FP8 matrices with 128x128 scales gives the bits of the same values stored as floats:
// also kv_b's key halves, which are transposed as codes where heads and tiles fit, and decoded
// where they do not.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "models/model_runner.h"
#include "tensor/dtype.h"
#include "weights/tiny_files.h"

namespace deepinfer::models {
namespace {

constexpr size_t kTile = 128;

struct Sizes {
  const char* name;
  uint32_t nope, value, kv_lora;
  uint32_t q_lora = 192;  // tiles that are cut off; 0: none
};

class Checkpoints {
 public:
  explicit Checkpoints(const Sizes& sizes) : sizes_(sizes) {
    config_ = {{"model_type", "deepseek_v3"},
               {"architectures", {"DeepseekV3ForCausalLM"}},
               {"hidden_act", "silu"},
               {"vocab_size", 64},
               {"hidden_size", 256},
               {"intermediate_size", 320},
               {"moe_intermediate_size", 128},
               {"num_hidden_layers", 2},
               {"num_attention_heads", 2},
               {"num_key_value_heads", 2},
               {"kv_lora_rank", sizes.kv_lora},
               {"qk_nope_head_dim", sizes.nope},
               {"qk_rope_head_dim", 64},
               {"v_head_dim", sizes.value},
               {"n_routed_experts", 4},
               {"n_shared_experts", 2},
               {"num_experts_per_tok", 2},
               {"n_group", 1},
               {"topk_group", 1},
               {"norm_topk_prob", true},
               {"routed_scaling_factor", 2.5},
               {"scoring_func", "sigmoid"},
               {"topk_method", "noaux_tc"},
               {"first_k_dense_replace", 1},
               {"moe_layer_freq", 1},
               {"max_position_embeddings", 512},
               {"rms_norm_eps", 1e-6},
               {"rope_theta", 10000.0},
               {"tie_word_embeddings", false},
               {"attention_bias", false},
               {"num_nextn_predict_layers", 0},
               {"bos_token_id", 0},
               {"eos_token_id", 1}};
    if (sizes.q_lora > 0) {
      config_["q_lora_rank"] = sizes.q_lora;
    } else {
      config_["q_lora_rank"] = nullptr;
    }
    add_model();
  }

  void write_fp8(const std::string& folder) {
    config_["quantization_config"] = {{"quant_method", "fp8"},
                                      {"fmt", "e4m3"},
                                      {"activation_scheme", "dynamic"},
                                      {"weight_block_size", {kTile, kTile}}};
    write(folder, fp8_);
    config_.erase("quantization_config");
  }
  void write_floats(const std::string& folder) const { write(folder, floats_); }

 private:
  struct File {
    nlohmann::json header;
    std::string data;
    void add(const std::string& name, const char* dtype, std::vector<uint64_t> shape,
             const std::string& bytes) {
      header[name] = {{"dtype", dtype},
                      {"shape", std::move(shape)},
                      {"data_offsets", {data.size(), data.size() + bytes.size()}}};
      data += bytes;
    }
  };
  template <class T>
  static std::string bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }

  // Stored as floats in both files.
  void add_floats(const std::string& name, std::vector<uint64_t> shape, float mean, float size) {
    size_t count = 1;
    for (const uint64_t dim : shape) count *= dim;
    std::normal_distribution<float> normal(mean, size);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random_);
    for (File* file : {&fp8_, &floats_}) file->add(name, "F32", shape, bytes_of(values));
  }

  void add_matrix(const std::string& name, uint64_t rows, uint64_t columns) {
    const uint64_t across = (columns + kTile - 1) / kTile, down = (rows + kTile - 1) / kTile;
    std::normal_distribution<float> normal(0.0f, 16.0f);
    std::uniform_real_distribution<float> spread(0.7f, 1.3f);
    std::vector<float> scales(across * down), values(rows * columns);
    std::vector<uint8_t> codes(rows * columns);
    for (float& scale : scales) {
      scale = spread(random_) / 16.0f / std::sqrt(static_cast<float>(columns));
    }
    for (size_t i = 0; i < codes.size(); ++i) {
      codes[i] = f32_to_e4m3(normal(random_));
      values[i] =
          e4m3_to_f32(codes[i]) * scales[i / columns / kTile * across + i % columns / kTile];
    }
    fp8_.add(name + ".weight", "F8_E4M3", {rows, columns}, bytes_of(codes));
    fp8_.add(name + ".weight_scale_inv", "F32", {down, across}, bytes_of(scales));
    floats_.add(name + ".weight", "F32", {rows, columns}, bytes_of(values));
  }

  void add_ffn(const std::string& prefix, uint64_t width) {
    add_matrix(prefix + "gate_proj", width, 256);
    add_matrix(prefix + "up_proj", width, 256);
    add_matrix(prefix + "down_proj", 256, width);
  }

  void add_model() {
    add_floats("model.embed_tokens.weight", {64, 256}, 0.0f, 1.0f);
    add_floats("model.norm.weight", {256}, 1.0f, 0.2f);
    add_floats("lm_head.weight", {64, 256}, 0.0f, 0.1f);
    for (int n = 0; n < 2; ++n) {
      const std::string layer = "model.layers." + std::to_string(n) + ".";
      const std::string attention = layer + "self_attn.";
      add_floats(layer + "input_layernorm.weight", {256}, 1.0f, 0.2f);
      add_floats(layer + "post_attention_layernorm.weight", {256}, 1.0f, 0.2f);
      add_floats(attention + "kv_a_layernorm.weight", {sizes_.kv_lora}, 1.0f, 0.2f);
      const uint64_t queries = 2 * (sizes_.nope + 64);
      if (sizes_.q_lora > 0) {
        add_matrix(attention + "q_a_proj", sizes_.q_lora, 256);
        add_floats(attention + "q_a_layernorm.weight", {sizes_.q_lora}, 1.0f, 0.2f);
        add_matrix(attention + "q_b_proj", queries, sizes_.q_lora);
      } else {
        add_matrix(attention + "q_proj", queries, 256);
      }
      add_matrix(attention + "kv_a_proj_with_mqa", sizes_.kv_lora + 64, 256);
      add_matrix(attention + "kv_b_proj", 2 * (sizes_.nope + sizes_.value), sizes_.kv_lora);
      add_matrix(attention + "o_proj", 256, 2 * sizes_.value);
      if (n == 0) {
        add_ffn(layer + "mlp.", 320);
        continue;
      }
      add_floats(layer + "mlp.gate.weight", {4, 256}, 0.0f, 0.1f);
      add_floats(layer + "mlp.gate.e_score_correction_bias", {4}, 0.0f, 0.1f);
      for (int e = 0; e < 4; ++e) {
        add_ffn(layer + "mlp.experts." + std::to_string(e) + ".", 128);
      }
      add_ffn(layer + "mlp.shared_experts.", 256);
    }
  }

  void write(const std::string& folder, const File& file) const {
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/config.json") << config_.dump();
    std::ofstream(folder + "/model.safetensors", std::ios::binary)
        << weights::safetensors_file(file.header.dump(), file.data);
  }

  const Sizes sizes_;
  nlohmann::json config_;
  std::mt19937 random_{7};
  File fp8_, floats_;
};

class Fp8 : public ::testing::TestWithParam<Sizes> {};

TEST_P(Fp8, HasTheBitsOfFloats) {
  const weights::TempFolder folder;
  Checkpoints checkpoints(GetParam());
  checkpoints.write_fp8(folder.path() + "/fp8");
  checkpoints.write_floats(folder.path() + "/floats");
  std::vector<int32_t> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(i * 11 % 64);
  for (const kernels::Isa isa : isas_of_this_machine()) {
    const RunnerOptions options = {.isa = isa, .threads = 2};
    ModelRunner fp8 = ModelRunner::open(folder.path() + "/fp8", options);
    ModelRunner floats = ModelRunner::open(folder.path() + "/floats", options);
    const std::vector<float> whole = fp8.logits(ids, ids.size());
    EXPECT_TRUE(whole == floats.logits(ids, ids.size())) << kernels::isa_name(isa);
    EXPECT_TRUE(whole == fp8.logits(ids, 3)) << kernels::isa_name(isa);
    // As stored: not inflated, except where the codes do not turn.
    if (GetParam().nope % kTile == 0) {
      EXPECT_LT(fp8.model().weight_bytes_per_step(), floats.model().weight_bytes_per_step() / 3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Fp8,
                         ::testing::Values(Sizes{"HeadsOfWholeTiles", 128, 128, 256},
                                           Sizes{"HeadsOfTwoTiles", 256, 128, 256},
                                           Sizes{"KeysTurnValuesDoNot", 64, 192, 128},
                                           Sizes{"NoHeadFits", 32, 40, 72},
                                           Sizes{"NoQueryRank", 128, 128, 128, 0}),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace deepinfer::models
