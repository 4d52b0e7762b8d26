#pragma once

// The tiny V3 and V4 models of the goldens (plain BF16 files) as GGUF files, for tests: the same
// numbers under the names and keys of spec gguf.md.
//
// Threads: pure functions.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weights/checkpoint.h"
#include "weights/deepseek/deepseek_config.h"
#include "weights/gguf/gguf_deepseek.h"
#include "weights/tiny_files.h"

namespace deepinfer::weights {

inline std::string bytes_of(const TensorView& view) {
  return {reinterpret_cast<const char*>(view.data), view.bytes()};
}

inline std::vector<uint64_t> dims_of(const Shape& shape) {
  std::vector<uint64_t> dims;
  for (size_t axis = 0; axis < shape.rank(); ++axis) dims.push_back(shape[axis]);
  return dims;
}

// Token tables become I32, as GGUF has them.
inline std::string as_i32(const TensorView& view) {
  std::string bytes;
  for (uint64_t i = 0; i < view.shape.elements(); ++i) {
    int64_t value = 0;
    std::memcpy(&value, view.data + i * sizeof(value), sizeof(value));
    bytes += raw(static_cast<int32_t>(value));
  }
  return bytes;
}

// Experts of one layer under one name: "ffn.experts.3.w1.weight" -> "ffn.experts.w1.weight".
inline std::string without_expert(const std::string& name, uint64_t* expert) {
  const size_t at = name.find(".experts.");
  if (at == std::string::npos) return name;
  const size_t number = at + std::string_view(".experts.").size();
  const size_t end = name.find('.', number);
  *expert = std::stoull(name.substr(number, end - number));
  return name.substr(0, number) + name.substr(end + 1);
}

template <class Translate>
void add_tensors(GgufBuilder& gguf, const Checkpoint& checkpoint, const Translate& translate,
                 const std::string& skip) {
  struct Stack {
    DType dtype = DType::bf16;
    Shape shape;
    std::map<uint64_t, std::string> parts;
  };
  std::map<std::string, Stack> stacks;
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    if (!skip.empty() && tensor.name.ends_with(skip)) continue;
    uint64_t expert = UINT64_MAX;
    const std::optional<std::string> name = translate(without_expert(tensor.name, &expert));
    ASSERT_TRUE(name.has_value()) << tensor.name;
    if (expert != UINT64_MAX) {
      Stack& stack = stacks[*name];
      stack.dtype = tensor.view.dtype;
      stack.shape = tensor.view.shape;
      stack.parts[expert] = bytes_of(tensor.view);
    } else if (tensor.view.dtype == DType::i64) {
      gguf.stored(*name, DType::i32, dims_of(tensor.view.shape), as_i32(tensor.view));
    } else {
      gguf.stored(*name, tensor.view.dtype, dims_of(tensor.view.shape), bytes_of(tensor.view));
    }
  }
  for (const auto& [name, stack] : stacks) {
    std::string bytes;
    for (const auto& [index, part] : stack.parts) bytes += part;
    gguf.stored(name, stack.dtype, {stack.parts.size(), stack.shape[0], stack.shape[1]}, bytes);
  }
}

inline void add_yarn(GgufBuilder& gguf, const std::string& prefix, const RopeConfig& rope) {
  if (rope.scaling != RopeScaling::yarn) return;
  gguf.text(prefix + "rope.scaling.type", "yarn")
      .f32(prefix + "rope.scaling.factor", static_cast<float>(rope.factor))
      .u32(prefix + "rope.scaling.original_context_length",
           static_cast<uint32_t>(rope.original_context))
      .f32(prefix + "rope.scaling.yarn_beta_fast", static_cast<float>(rope.beta_fast))
      .f32(prefix + "rope.scaling.yarn_beta_slow", static_cast<float>(rope.beta_slow));
}

// What both families say in the same words; blocks counts draft layers too.
inline void add_model(GgufBuilder& gguf, const std::string& prefix, const ModelConfig& config,
                      const MoeConfig& moe, uint32_t blocks, uint32_t gating) {
  gguf.u32(prefix + "block_count", blocks)
      .u32(prefix + "context_length", config.context)
      .u32(prefix + "embedding_length", config.hidden)
      .u32(prefix + "vocab_size", config.vocab)
      .f32(prefix + "attention.layer_norm_rms_epsilon", static_cast<float>(config.norm_eps))
      .u32("tokenizer.ggml.bos_token_id", *config.bos_id)
      .u32("tokenizer.ggml.eos_token_id", config.eos_ids.front())
      .u32(prefix + "expert_count", moe.experts)
      .u32(prefix + "expert_used_count", moe.per_token)
      .u32(prefix + "expert_shared_count", moe.shared_width / moe.width)
      .u32(prefix + "expert_feed_forward_length", moe.width)
      .f32(prefix + "expert_weights_scale", static_cast<float>(moe.scaling))
      .flag(prefix + "expert_weights_norm", moe.normalize)
      .u32(prefix + "expert_gating_func", gating);
}

inline GgufBuilder v4_metadata(const DeepseekV4Config& config) {
  GgufBuilder gguf;
  const std::string p = "deepseek4.";
  gguf.text("general.architecture", "deepseek4");
  add_model(gguf, p, config, config.moe, config.layers + (config.mtp ? 1 : 0), 4);
  std::vector<int32_t> ratios(config.ratios.begin(), config.ratios.end());
  if (config.mtp) ratios.push_back(0);
  const std::vector<float> clamp(config.layers, static_cast<float>(config.moe.clamp));
  gguf.u32(p + "attention.head_count", config.heads)
      .u32(p + "attention.head_count_kv", 1)
      .u32(p + "attention.key_length", config.head_dim)
      .u32(p + "attention.value_length", config.head_dim)
      .u32(p + "rope.dimension_count", config.rope_dim)
      .u32(p + "attention.q_lora_rank", config.q_lora)
      .u32(p + "attention.output_lora_rank", config.o_lora)
      .u32(p + "attention.output_group_count", config.o_groups)
      .u32(p + "attention.sliding_window", config.window)
      .array(p + "attention.compress_ratios", kI32, ratios)
      .array(p + "swiglu_clamp_exp", kF32, clamp)
      .array(p + "swiglu_clamp_shexp", kF32, clamp)
      .u32(p + "attention.indexer.head_count", config.indexer.heads)
      .u32(p + "attention.indexer.key_length", config.indexer.dim)
      .u32(p + "attention.indexer.top_k", config.indexer.topk)
      .u32(p + "hyper_connection.count", config.hyper.streams)
      .u32(p + "hyper_connection.sinkhorn_iterations", config.hyper.sinkhorn_iterations)
      .f32(p + "hyper_connection.epsilon", static_cast<float>(config.hyper.eps))
      .u32(p + "hash_layer_count", config.hash_layers)
      .f32(p + "rope.freq_base", static_cast<float>(config.rope.theta))
      .f32(p + "attention.compress_rope_freq_base", static_cast<float>(config.compress_rope.theta))
      .u32(p + "nextn_predict_layers", config.mtp ? 1 : 0);
  add_yarn(gguf, p, config.compress_rope);
  return gguf;
}

inline std::string v4_twin(const Checkpoint& checkpoint, const DeepseekV4Config& config) {
  GgufBuilder gguf = v4_metadata(config);
  add_tensors(
      gguf, checkpoint, [&](const std::string& name) { return gguf_v4_name(name, config.layers); },
      "");
  return gguf.build();
}

// The same with the MTP layer's two projections joined, as some files have them.
inline std::string v4_joined_twin(const Checkpoint& checkpoint, const DeepseekV4Config& config) {
  GgufBuilder gguf = v4_metadata(config);
  const auto name = [&](const std::string& one) { return gguf_v4_name(one, config.layers); };
  add_tensors(gguf, checkpoint, name, "_proj.weight");
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    if (!tensor.name.ends_with("weights_proj.weight")) continue;
    gguf.stored(*name(tensor.name), tensor.view.dtype, dims_of(tensor.view.shape),
                bytes_of(tensor.view));
  }
  const TensorView& e = *checkpoint.find("mtp.0.e_proj.weight");
  const TensorView& h = *checkpoint.find("mtp.0.h_proj.weight");
  std::string bytes;
  for (uint64_t n = 0; n < e.rows(); ++n) {
    for (const TensorView* part : {&e, &h}) {
      bytes.append(reinterpret_cast<const char*>(part->row(n)), part->row_size());
    }
  }
  gguf.stored(*name("mtp.0.eh_proj.weight"), e.dtype, {e.rows(), 2 * e.row_elements()}, bytes);
  return gguf.build();
}

inline GgufBuilder v3_metadata(const DeepseekV3Config& config, bool absorbed) {
  GgufBuilder gguf;
  const std::string p = "deepseek2.";
  gguf.text("general.architecture", "deepseek2");
  add_model(gguf, p, config, config.moe, config.layers + config.next_layers, 2);
  const uint32_t length = config.nope_dim + config.rope_dim;
  gguf.u32(p + "attention.head_count", config.heads)
      .u32(p + "attention.head_count_kv", absorbed ? 1 : config.heads)
      .u32(p + "attention.q_lora_rank", config.q_lora)
      .u32(p + "attention.kv_lora_rank", config.kv_lora)
      .u32(p + "attention.key_length", absorbed ? config.kv_lora + config.rope_dim : length)
      .u32(p + "attention.value_length", absorbed ? config.kv_lora : config.value_dim)
      .u32(p + "rope.dimension_count", config.rope_dim)
      .u32(p + "feed_forward_length", config.dense_width)
      .u32(p + "leading_dense_block_count", config.dense_layers)
      .u32(p + "expert_group_count", config.moe.groups)
      .u32(p + "expert_group_used_count", config.moe.groups_kept)
      .f32(p + "rope.freq_base", static_cast<float>(config.rope.theta));
  if (absorbed) {
    gguf.u32(p + "attention.key_length_mla", length)
        .u32(p + "attention.value_length_mla", config.value_dim);
  }
  add_yarn(gguf, p, config.rope);
  // The goldens' mscale_all_dim is 1.
  gguf.f32(p + "rope.scaling.yarn_log_multiplier", 0.1f);
  return gguf;
}

// kv_b [heads * (nope + value), rank] of 2-byte values, cut: keys [heads, rank, nope] transposed,
// values [heads, value, rank].
inline void add_absorbed(GgufBuilder& gguf, const std::string& layer, const TensorView& kv_b,
                         const DeepseekV3Config& config) {
  const uint64_t nope = config.nope_dim, value = config.value_dim, rank = config.kv_lora;
  const size_t bytes = 2;
  std::string keys, values;
  for (uint64_t head = 0; head < config.heads; ++head) {
    const uint64_t first = head * (nope + value);
    for (uint64_t k = 0; k < rank; ++k) {
      for (uint64_t n = 0; n < nope; ++n) {
        keys.append(reinterpret_cast<const char*>(kv_b.row(first + n)) + k * bytes, bytes);
      }
    }
    values.append(reinterpret_cast<const char*>(kv_b.row(first + nope)), value * rank * bytes);
  }
  gguf.stored(layer + "attn_k_b.weight", kv_b.dtype, {config.heads, rank, nope}, keys);
  gguf.stored(layer + "attn_v_b.weight", kv_b.dtype, {config.heads, value, rank}, values);
}

// absorbed: kv_b in two tensors per layer, as newer files have it.
inline std::string v3_twin(const Checkpoint& checkpoint, const DeepseekV3Config& config,
                           bool absorbed) {
  GgufBuilder gguf = v3_metadata(config, absorbed);
  add_tensors(
      gguf, checkpoint, [](const std::string& name) { return gguf_v3_name(name); },
      absorbed ? ".kv_b_proj.weight" : "");
  for (uint32_t n = 0; absorbed && n < config.layers; ++n) {
    const TensorView* kv_b =
        checkpoint.find(fmt::format("model.layers.{}.self_attn.kv_b_proj.weight", n));
    add_absorbed(gguf, fmt::format("blk.{}.", n), *kv_b, config);
  }
  return gguf.build();
}

}  // namespace deepinfer::weights
