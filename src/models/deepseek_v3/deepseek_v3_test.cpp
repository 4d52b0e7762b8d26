// V3 of random weights: against a plain loop that expands keys and values per head, in double; and
// from FP8 matrices with 128x128 scales, which give the bits of the same values stored as floats:
// also kv_b's key halves, which are transposed as codes where heads and tiles fit, and decoded
// where they do not.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
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
  const std::map<std::string, std::vector<float>>& values() const { return values_; }

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
    values_[name] = std::move(values);
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
    values_[name + ".weight"] = std::move(values);
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
  std::map<std::string, std::vector<float>> values_;
};

// The model as its papers write it, one token after the other, keys and values expanded per head.
class PlainV3 {
 public:
  PlainV3(const Sizes& sizes, const std::map<std::string, std::vector<float>>& values)
      : sizes_(sizes), values_(values) {}

  std::vector<double> logits(const std::vector<int32_t>& ids) const {
    using Rows = std::vector<Vector>;
    Rows x;
    for (const int32_t id : ids) {
      const float* row = at("model.embed_tokens").data() + static_cast<size_t>(id) * 256;
      x.emplace_back(row, row + 256);
    }
    for (int n = 0; n < 2; ++n) {
      const std::string layer = "model.layers." + std::to_string(n) + ".";
      attend(layer, x);
      for (Vector& row : x) {
        const Vector h = norm(layer + "post_attention_layernorm", row);
        add(row, 1.0, n == 0 ? ffn(layer + "mlp.", h) : moe(layer + "mlp.", h));
      }
    }
    std::vector<double> all;
    for (const Vector& row : x) {
      const Vector out = multiply("lm_head", norm("model.norm", row));
      all.insert(all.end(), out.begin(), out.end());
    }
    return all;
  }

 private:
  using Vector = std::vector<double>;
  static constexpr size_t kRope = 64;

  const std::vector<float>& at(const std::string& name) const {
    return values_.at(name + ".weight");
  }
  Vector multiply(const std::string& name, const Vector& x) const {
    const std::vector<float>& w = at(name);
    Vector out(w.size() / x.size());
    for (size_t i = 0; i < w.size(); ++i) out[i / x.size()] += double{w[i]} * x[i % x.size()];
    return out;
  }
  Vector norm(const std::string& name, const Vector& x) const {
    double squares = 0;
    for (const double value : x) squares += value * value;
    Vector out(x);
    const std::vector<float>& w = at(name);
    for (size_t i = 0; i < x.size(); ++i) {
      out[i] *= double{w[i]} / std::sqrt(squares / static_cast<double>(x.size()) + 1e-6);
    }
    return out;
  }
  static void add(Vector& to, double weight, const Vector& x) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += weight * x[i];
  }
  static void rotate(double* x, size_t position) {
    for (size_t i = 0; i < kRope; i += 2) {
      const double exponent = static_cast<double>(i) / kRope;
      const double angle = static_cast<double>(position) * std::pow(10000.0, -exponent);
      const double a = x[i], b = x[i + 1];
      x[i] = a * std::cos(angle) - b * std::sin(angle);
      x[i + 1] = a * std::sin(angle) + b * std::cos(angle);
    }
  }
  Vector ffn(const std::string& name, const Vector& h) const {
    Vector g = multiply(name + "gate_proj", h);
    const Vector u = multiply(name + "up_proj", h);
    for (size_t i = 0; i < g.size(); ++i) g[i] = g[i] / (1.0 + std::exp(-g[i])) * u[i];
    return multiply(name + "down_proj", g);
  }
  Vector moe(const std::string& name, const Vector& h) const {
    Vector scores = multiply(name + "gate", h);
    const std::vector<float>& bias = values_.at(name + "gate.e_score_correction_bias");
    std::vector<size_t> order = {0, 1, 2, 3};
    for (double& score : scores) score = 1.0 / (1.0 + std::exp(-score));
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return scores[a] + double{bias[a]} > scores[b] + double{bias[b]};
    });
    Vector out = ffn(name + "shared_experts.", h);
    const double sum = scores[order[0]] + scores[order[1]];
    for (size_t i = 0; i < 2; ++i) {
      add(out, scores[order[i]] / sum * 2.5,
          ffn(name + "experts." + std::to_string(order[i]) + ".", h));
    }
    return out;
  }
  void attend(const std::string& layer, std::vector<Vector>& x) const {
    const size_t nope = sizes_.nope, value = sizes_.value, head = nope + kRope;
    const std::string name = layer + "self_attn.";
    std::vector<Vector> key_values, rotated;  // of every token so far
    for (size_t t = 0; t < x.size(); ++t) {
      const Vector n = norm(layer + "input_layernorm", x[t]);
      Vector q = sizes_.q_lora == 0
                     ? multiply(name + "q_proj", n)
                     : multiply(name + "q_b_proj",
                                norm(name + "q_a_layernorm", multiply(name + "q_a_proj", n)));
      Vector kv = multiply(name + "kv_a_proj_with_mqa", n);
      rotated.emplace_back(kv.end() - kRope, kv.end());
      rotate(rotated.back().data(), t);
      kv.resize(sizes_.kv_lora);
      key_values.push_back(multiply(name + "kv_b_proj", norm(name + "kv_a_layernorm", kv)));
      Vector attended;
      for (size_t h = 0; h < 2; ++h) {
        rotate(q.data() + h * head + nope, t);
        Vector weights, sum(value);
        double total = 0;
        for (size_t s = 0; s <= t; ++s) {
          double dot = 0;
          for (size_t i = 0; i < nope; ++i) {
            dot += q[h * head + i] * key_values[s][h * (nope + value) + i];
          }
          for (size_t i = 0; i < kRope; ++i) dot += q[h * head + nope + i] * rotated[s][i];
          weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(head))));
          total += weights.back();
        }
        for (size_t s = 0; s <= t; ++s) {
          for (size_t i = 0; i < value; ++i) {
            sum[i] += weights[s] / total * key_values[s][h * (nope + value) + nope + i];
          }
        }
        attended.insert(attended.end(), sum.begin(), sum.end());
      }
      add(x[t], 1.0, multiply(name + "o_proj", attended));
    }
  }

  const Sizes sizes_;
  const std::map<std::string, std::vector<float>>& values_;
};

std::vector<int32_t> some_ids() {
  std::vector<int32_t> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(i * 11 % 64);
  return ids;
}

class DeepseekV3OfRandomWeights : public ::testing::TestWithParam<Sizes> {};

TEST_P(DeepseekV3OfRandomWeights, EqualsAPlainLoop) {
  const weights::TempFolder folder;
  const Checkpoints checkpoints(GetParam());
  checkpoints.write_floats(folder.path());
  const std::vector<int32_t> ids = some_ids();
  const std::vector<double> expected = PlainV3(GetParam(), checkpoints.values()).logits(ids);
  for (const kernels::Isa isa : isas_of_this_machine()) {
    const std::vector<float> logits =
        ModelRunner::open(folder.path(), {.isa = isa, .threads = 2}).logits(ids, ids.size());
    ASSERT_EQ(logits.size(), expected.size());
    double worst = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      worst = std::max(worst, std::abs(double{logits[i]} - expected[i]));
    }
    EXPECT_LT(worst, 1e-3) << kernels::isa_name(isa);
  }
}

TEST_P(DeepseekV3OfRandomWeights, Fp8HasTheBitsOfFloats) {
  const weights::TempFolder folder;
  Checkpoints checkpoints(GetParam());
  checkpoints.write_fp8(folder.path() + "/fp8");
  checkpoints.write_floats(folder.path() + "/floats");
  const std::vector<int32_t> ids = some_ids();
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

// Experts through few slots give the bits of experts in memory, and are read again and again.
TEST(DeepseekV3, StreamedExpertsGiveTheSameBits) {
  const weights::TempFolder folder;
  Checkpoints checkpoints({"Streamed", 128, 128, 256});
  checkpoints.write_fp8(folder.path() + "/fp8");
  const std::vector<int32_t> ids = some_ids();
  for (const std::string& path : {folder.path() + "/fp8", tiny_model_path("deepseek_v3")}) {
    RunnerOptions options{.isa = isas_of_this_machine().back()};
    const std::vector<float> resident = ModelRunner::open(path, options).logits(ids, ids.size());
    options.stream_bytes = uint64_t{1} << 20;
    ModelRunner streamed = ModelRunner::open(path, options);
    for (const size_t chunk : {1, 7, 40}) EXPECT_TRUE(streamed.logits(ids, chunk) == resident);
    EXPECT_GT(streamed.model().stream_counters().misses, 3u) << path;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, DeepseekV3OfRandomWeights,
                         ::testing::Values(Sizes{"HeadsOfWholeTiles", 128, 128, 256},
                                           Sizes{"HeadsOfTwoTiles", 256, 128, 256},
                                           Sizes{"KeysTurnValuesDoNot", 64, 192, 128},
                                           Sizes{"NoHeadFits", 32, 40, 72},
                                           Sizes{"NoQueryRank", 128, 128, 128, 0}),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace deepinfer::models
