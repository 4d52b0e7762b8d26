// Official names of DeepSeek tensors to those of GGUF (spec gguf.md).

#include <fmt/format.h>

#include <charconv>
#include <span>

#include "weights/gguf/gguf_deepseek.h"

namespace deepinfer::weights {
namespace {

struct Pair {
  std::string_view official;
  std::string_view gguf;
};

constexpr Pair kV4Model[] = {
    {"embed.weight", "token_embd.weight"},     {"head.weight", "output.weight"},
    {"norm.weight", "output_norm.weight"},     {"hc_head_fn", "output_hc_fn.weight"},
    {"hc_head_base", "output_hc_base.weight"}, {"hc_head_scale", "output_hc_scale.weight"}};

// After "layers.N." and "blk.N.".
constexpr Pair kV4Layer[] = {
    {"attn_norm.weight", "attn_norm.weight"},
    {"ffn_norm.weight", "ffn_norm.weight"},
    {"hc_attn_fn", "hc_attn_fn.weight"},
    {"hc_attn_base", "hc_attn_base.weight"},
    {"hc_attn_scale", "hc_attn_scale.weight"},
    {"hc_ffn_fn", "hc_ffn_fn.weight"},
    {"hc_ffn_base", "hc_ffn_base.weight"},
    {"hc_ffn_scale", "hc_ffn_scale.weight"},
    {"attn.wq_a.weight", "attn_q_a.weight"},
    {"attn.q_norm.weight", "attn_q_a_norm.weight"},
    {"attn.wq_b.weight", "attn_q_b.weight"},
    {"attn.wkv.weight", "attn_kv.weight"},
    {"attn.kv_norm.weight", "attn_kv_a_norm.weight"},
    {"attn.attn_sink", "attn_sinks.weight"},
    {"attn.wo_a.weight", "attn_output_a.weight"},
    {"attn.wo_b.weight", "attn_output_b.weight"},
    {"attn.compressor.ape", "attn_compressor_ape.weight"},
    {"attn.compressor.wkv.weight", "attn_compressor_kv.weight"},
    {"attn.compressor.wgate.weight", "attn_compressor_gate.weight"},
    {"attn.compressor.norm.weight", "attn_compressor_norm.weight"},
    {"attn.indexer.wq_b.weight", "indexer.attn_q_b.weight"},
    {"attn.indexer.weights_proj.weight", "indexer.proj.weight"},
    {"attn.indexer.compressor.ape", "indexer_compressor_ape.weight"},
    {"attn.indexer.compressor.wkv.weight", "indexer_compressor_kv.weight"},
    {"attn.indexer.compressor.wgate.weight", "indexer_compressor_gate.weight"},
    {"attn.indexer.compressor.norm.weight", "indexer_compressor_norm.weight"},
    {"ffn.gate.weight", "ffn_gate_inp.weight"},
    {"ffn.gate.bias", "exp_probs_b.bias"},
    {"ffn.gate.tid2eid", "ffn_gate_tid2eid.weight"},
    {"ffn.experts.w1.weight", "ffn_gate_exps.weight"},
    {"ffn.experts.w2.weight", "ffn_down_exps.weight"},
    {"ffn.experts.w3.weight", "ffn_up_exps.weight"},
    {"ffn.shared_experts.w1.weight", "ffn_gate_shexp.weight"},
    {"ffn.shared_experts.w2.weight", "ffn_down_shexp.weight"},
    {"ffn.shared_experts.w3.weight", "ffn_up_shexp.weight"}};

// After "mtp.N." and "blk.N.".
constexpr Pair kV4Draft[] = {{"e_proj.weight", "nextn.e_proj.weight"},
                             {"h_proj.weight", "nextn.h_proj.weight"},
                             {"eh_proj.weight", "nextn.eh_proj.weight"},
                             {"enorm.weight", "nextn.enorm.weight"},
                             {"hnorm.weight", "nextn.hnorm.weight"},
                             {"norm.weight", "nextn.shared_head_norm.weight"},
                             {"hc_head_fn", "nextn.hc_head_fn.weight"},
                             {"hc_head_base", "nextn.hc_head_base.weight"},
                             {"hc_head_scale", "nextn.hc_head_scale.weight"}};

constexpr Pair kV3Model[] = {{"model.embed_tokens.weight", "token_embd.weight"},
                             {"model.norm.weight", "output_norm.weight"},
                             {"lm_head.weight", "output.weight"}};

// After "model.layers.N." and "blk.N.".
constexpr Pair kV3Layer[] = {{"input_layernorm.weight", "attn_norm.weight"},
                             {"post_attention_layernorm.weight", "ffn_norm.weight"},
                             {"self_attn.q_proj.weight", "attn_q.weight"},
                             {"self_attn.q_a_proj.weight", "attn_q_a.weight"},
                             {"self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight"},
                             {"self_attn.q_b_proj.weight", "attn_q_b.weight"},
                             {"self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight"},
                             {"self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight"},
                             {"self_attn.kv_b_proj.weight", "attn_kv_b.weight"},
                             {"self_attn.k_b.weight", "attn_k_b.weight"},
                             {"self_attn.v_b.weight", "attn_v_b.weight"},
                             {"self_attn.o_proj.weight", "attn_output.weight"},
                             {"mlp.gate_proj.weight", "ffn_gate.weight"},
                             {"mlp.up_proj.weight", "ffn_up.weight"},
                             {"mlp.down_proj.weight", "ffn_down.weight"},
                             {"mlp.gate.weight", "ffn_gate_inp.weight"},
                             {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
                             {"mlp.experts.gate_proj.weight", "ffn_gate_exps.weight"},
                             {"mlp.experts.up_proj.weight", "ffn_up_exps.weight"},
                             {"mlp.experts.down_proj.weight", "ffn_down_exps.weight"},
                             {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"},
                             {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight"},
                             {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight"},
                             {"eh_proj.weight", "nextn.eh_proj.weight"},
                             {"enorm.weight", "nextn.enorm.weight"},
                             {"hnorm.weight", "nextn.hnorm.weight"},
                             {"shared_head.norm.weight", "nextn.shared_head_norm.weight"},
                             {"embed_tokens.weight", "nextn.embed_tokens.weight"},
                             {"shared_head.head.weight", "nextn.shared_head_head.weight"}};

std::optional<std::string> lookup(std::span<const Pair> pairs, std::string_view official) {
  for (const Pair& pair : pairs) {
    if (pair.official == official) return std::string(pair.gguf);
  }
  return std::nullopt;
}

// "layers.12.rest" with the prefix "layers." -> 12 and "rest".
struct LayerName {
  uint32_t layer = 0;
  std::string_view rest;
};
std::optional<LayerName> split(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  LayerName found;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), found.layer);
  const size_t digits = static_cast<size_t>(end - name.data());
  if (error != std::errc() || digits + 1 > name.size()) return std::nullopt;
  found.rest = name.substr(digits + 1);
  return found;
}

std::optional<std::string> in_block(uint32_t block, std::optional<std::string> name) {
  if (!name) return std::nullopt;
  return fmt::format("blk.{}.{}", block, *name);
}

}  // namespace

std::optional<std::string> gguf_v4_name(std::string_view official, uint32_t layers) {
  if (const auto layer = split(official, "layers.")) {
    return in_block(layer->layer, lookup(kV4Layer, layer->rest));
  }
  if (const auto draft = split(official, "mtp.")) {
    std::optional<std::string> name = lookup(kV4Draft, draft->rest);
    if (!name) name = lookup(kV4Layer, draft->rest);
    return in_block(layers + draft->layer, std::move(name));
  }
  return lookup(kV4Model, official);
}

std::optional<std::string> gguf_v3_name(std::string_view official) {
  if (const auto layer = split(official, "model.layers.")) {
    return in_block(layer->layer, lookup(kV3Layer, layer->rest));
  }
  return lookup(kV3Model, official);
}

}  // namespace deepinfer::weights
