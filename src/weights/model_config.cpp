#include "weights/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "weights/config_reader.h"
#include "weights/deepseek/deepseek_config.h"
#include "weights/deepseek/deepseek_config_parts.h"
#include "weights/tensor_table.h"

namespace deepinfer::weights {
namespace {

struct Names {
  const char* embedding;
  const char* output;
  const char* q_bias;
  const char* o_bias;
};
constexpr Names kHfNames = {"model.embed_tokens.weight", "lm_head.weight",
                            "model.layers.0.self_attn.q_proj.bias",
                            "model.layers.0.self_attn.o_proj.bias"};
constexpr Names kGgufNames = {"token_embd.weight", "output.weight", "blk.0.attn_q.bias",
                              "blk.0.attn_output.bias"};

bool same_bytes(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape && std::memcmp(a.data, b.data, a.bytes()) == 0;
}

Result<const TensorView*> check_embedding(const Checkpoint& checkpoint, const LlamaConfig& config,
                                          const char* name) {
  const std::string thing = tensor_thing(checkpoint.path(), name);
  const TensorView* embedding = checkpoint.find(name);
  if (embedding == nullptr) return Error::corrupt(thing, "is missing");
  const Shape expected = {config.vocab, config.hidden};
  if (embedding->shape != expected) {
    return Error::corrupt(thing, fmt::format("file has {}, config says {} (vocab x hidden)",
                                             embedding->shape.text(), expected.text()));
  }
  return embedding;
}

// config.json says what is there; the tensors must agree.
Result<void> confirm_hf(const Checkpoint& checkpoint, const LlamaConfig& config) {
  const TensorView* embedding = TRY(check_embedding(checkpoint, config, kHfNames.embedding));
  const TensorView* output = checkpoint.find(kHfNames.output);
  const std::string thing = tensor_thing(checkpoint.path(), kHfNames.output);
  if (output == nullptr && !config.tied_embeddings) {
    return Error::corrupt(thing, "is missing, and tie_word_embeddings is not true");
  }
  if (output != nullptr && config.tied_embeddings && !same_bytes(*output, *embedding)) {
    return Error::corrupt(thing, "differs from the embedding, and tie_word_embeddings is true");
  }
  struct Bias {
    const char* name;
    bool expected;
  };
  for (const Bias& bias :
       {Bias{kHfNames.q_bias, config.qkv_bias}, Bias{kHfNames.o_bias, config.output_bias}}) {
    const bool present = checkpoint.find(bias.name) != nullptr;
    if (present == bias.expected) continue;
    return Error::corrupt(tensor_thing(checkpoint.path(), bias.name),
                          present ? "is there, the config says there is no such bias"
                                  : "is missing, the config says there is such a bias");
  }
  return {};
}

Result<std::vector<float>> read_freq_factors(const TensorView& view, uint32_t dims,
                                             const std::string& thing) {
  const Shape expected = {dims / 2};
  if (view.dtype != DType::f32 || view.shape != expected) {
    return Error::corrupt(
        thing, fmt::format("is {} of shape {}, expected F32 of shape {}",
                           dtype_info(view.dtype).name, view.shape.text(), expected.text()));
  }
  std::vector<float> factors(dims / 2);
  std::memcpy(factors.data(), view.data, factors.size() * sizeof(float));
  for (size_t i = 0; i < factors.size(); ++i) {
    if (std::isfinite(factors[i]) && factors[i] > 0) continue;
    return Error::corrupt(thing,
                          fmt::format("value {} is {}, expected a positive number", i, factors[i]));
  }
  return factors;
}

// GGUF says by its tensors whether there are biases and an output of its own.
Result<void> complete_gguf(const Checkpoint& checkpoint, LlamaConfig& config) {
  TRY(check_embedding(checkpoint, config, kGgufNames.embedding));
  config.tied_embeddings = checkpoint.find(kGgufNames.output) == nullptr;
  config.qkv_bias = checkpoint.find(kGgufNames.q_bias) != nullptr;
  config.output_bias = checkpoint.find(kGgufNames.o_bias) != nullptr;
  if (const TensorView* factors = checkpoint.find("rope_freqs.weight")) {
    config.rope.freq_factors = TRY(read_freq_factors(
        *factors, config.rope.dims, tensor_thing(checkpoint.path(), "rope_freqs.weight")));
  }
  return {};
}

Result<void> check_rope(const RopeConfig& rope, uint32_t head_dim, const std::string& source) {
  if (rope.dims != head_dim || rope.dims % 2 != 0) {
    return Error::unsupported(
        source, fmt::format("rope turns {} dimensions of heads of {}, expected all of an even "
                            "number",
                            rope.dims, head_dim));
  }
  if (!std::isfinite(rope.theta) || rope.theta <= 0) {
    return Error::corrupt(source, fmt::format("rope theta is {}, expected above 0", rope.theta));
  }
  if (rope.scaling == RopeScaling::none) return {};
  if (!std::isfinite(rope.factor) || rope.factor <= 0) {
    return Error::corrupt(source, fmt::format("rope factor is {}, expected above 0", rope.factor));
  }
  if (rope.scaling == RopeScaling::linear) return {};
  if (rope.original_context < 1) {
    return Error::corrupt(source, fmt::format("rope's original context is {}, expected at least 1",
                                              rope.original_context));
  }
  if (rope.scaling == RopeScaling::llama3 &&
      !(rope.low_freq_factor > 0 && rope.high_freq_factor > rope.low_freq_factor)) {
    return Error::corrupt(source, fmt::format("rope low_freq_factor {} is not below "
                                              "high_freq_factor {}",
                                              rope.low_freq_factor, rope.high_freq_factor));
  }
  if (rope.scaling == RopeScaling::yarn &&
      !(rope.beta_slow > 0 && rope.beta_fast > rope.beta_slow && rope.attention_factor > 0)) {
    return Error::corrupt(source,
                          fmt::format("rope beta_slow {}, beta_fast {}, attention_factor "
                                      "{}: expected 0 < slow < fast and a positive factor",
                                      rope.beta_slow, rope.beta_fast, rope.attention_factor));
  }
  return {};
}

}  // namespace

std::string_view family_name(Family family) {
  switch (family) {
    case Family::llama:
      return "llama";
    case Family::qwen2:
      return "qwen2";
    case Family::qwen3:
      return "qwen3";
    case Family::deepseek_v3:
      return "deepseek_v3";
    case Family::deepseek_v32:
      return "deepseek_v32";
    case Family::deepseek_v4:
      return "deepseek_v4";
    case Family::deepseek_v41:
      return "deepseek_v41";
  }
  check(false, "every family has a name");
  return {};
}

std::optional<Family> family_from_name(std::string_view name) {
  for (const Family family : {Family::llama, Family::qwen2, Family::qwen3, Family::deepseek_v3,
                              Family::deepseek_v32, Family::deepseek_v4, Family::deepseek_v41}) {
    if (family_name(family) == name) return family;
  }
  // What the text part of a V4.1 configuration calls itself.
  if (name == "deepseek_v41_text") return Family::deepseek_v41;
  return std::nullopt;
}

double yarn_attention_factor(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

Result<void> check_llama_config(const LlamaConfig& config, const std::string& source) {
  if (config.kv_heads > config.heads || config.heads % config.kv_heads != 0) {
    return Error::corrupt(source, fmt::format("{} heads are not a multiple of {} key-value heads",
                                              config.heads, config.kv_heads));
  }
  if (!(config.norm_eps > 0 && config.norm_eps < 1)) {
    return Error::corrupt(
        source, fmt::format("the norm's epsilon is {}, expected between 0 and 1", config.norm_eps));
  }
  TRY(check_rope(config.rope, config.head_dim, source));
  std::vector<uint32_t> ids = config.eos_ids;
  if (config.bos_id) ids.push_back(*config.bos_id);
  for (const uint32_t id : ids) {
    if (id < config.vocab) continue;
    return Error::corrupt(source, fmt::format("token id {} (begin or end of text) is outside the "
                                              "vocabulary of {}",
                                              id, config.vocab));
  }
  return {};
}

Result<Family> read_family(const Checkpoint& checkpoint) {
  if (checkpoint.container() == Container::gguf) {
    return read_gguf_family(checkpoint.metadata(), checkpoint.path());
  }
  const ConfigText file = config_text(checkpoint);
  return parse_hf_family(file.text, file.source);
}

Result<ModelConfig> read_model_config(const Checkpoint& checkpoint) {
  switch (TRY(read_family(checkpoint))) {
    case Family::llama:
    case Family::qwen2:
    case Family::qwen3:
      return TRY(read_llama_config(checkpoint));
    case Family::deepseek_v3:
    case Family::deepseek_v32:
      return TRY(read_deepseek_v3_config(checkpoint));
    case Family::deepseek_v4:
      return TRY(read_deepseek_v4_config(checkpoint));
    case Family::deepseek_v41:
      return TRY(read_deepseek_v41_config(checkpoint));
  }
  check(false, "every family has a reader");
  return ModelConfig();
}

Result<LlamaConfig> read_llama_config(const Checkpoint& checkpoint) {
  if (checkpoint.container() == Container::gguf) {
    LlamaConfig config = TRY(parse_gguf_llama_config(checkpoint.metadata(), checkpoint.path()));
    TRY(complete_gguf(checkpoint, config));
    return config;
  }
  const std::optional<std::string> text = checkpoint.side_file("config.json");
  check(text.has_value(), "a safetensors checkpoint opens with its config.json");
  LlamaConfig config = TRY(parse_hf_llama_config(*text, checkpoint.path() + "/config.json"));
  if (const auto generation = checkpoint.side_file("generation_config.json")) {
    const std::string source = checkpoint.path() + "/generation_config.json";
    for (const uint32_t id : TRY(parse_hf_eos_ids(*generation, source))) {
      if (std::ranges::count(config.eos_ids, id) == 0) config.eos_ids.push_back(id);
    }
    TRY(check_llama_config(config, source));
  }
  TRY(confirm_hf(checkpoint, config));
  return config;
}

}  // namespace deepinfer::weights
