#include "weights/llama_names.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <string_view>

#include "weights/tensor_spec.h"
#include "weights/tensor_table.h"

namespace deepinfer::weights {
namespace {

struct Role {
  std::string_view hf;
  std::string_view gguf;
};
constexpr Role kEmbedding = {"model.embed_tokens.weight", "token_embd.weight"};
constexpr Role kOutputNorm = {"model.norm.weight", "output_norm.weight"};
constexpr Role kOutput = {"lm_head.weight", "output.weight"};
constexpr Role kLayerPrefix = {"model.layers.", "blk."};
// After "model.layers.N." and "blk.N.".
constexpr Role kAttnNorm = {"input_layernorm.weight", "attn_norm.weight"};
constexpr Role kQ = {"self_attn.q_proj.weight", "attn_q.weight"};
constexpr Role kK = {"self_attn.k_proj.weight", "attn_k.weight"};
constexpr Role kV = {"self_attn.v_proj.weight", "attn_v.weight"};
constexpr Role kO = {"self_attn.o_proj.weight", "attn_output.weight"};
constexpr Role kQBias = {"self_attn.q_proj.bias", "attn_q.bias"};
constexpr Role kKBias = {"self_attn.k_proj.bias", "attn_k.bias"};
constexpr Role kVBias = {"self_attn.v_proj.bias", "attn_v.bias"};
constexpr Role kOBias = {"self_attn.o_proj.bias", "attn_output.bias"};
constexpr Role kQNorm = {"self_attn.q_norm.weight", "attn_q_norm.weight"};
constexpr Role kKNorm = {"self_attn.k_norm.weight", "attn_k_norm.weight"};
constexpr Role kFfnNorm = {"post_attention_layernorm.weight", "ffn_norm.weight"};
constexpr Role kGate = {"mlp.gate_proj.weight", "ffn_gate.weight"};
constexpr Role kUp = {"mlp.up_proj.weight", "ffn_up.weight"};
constexpr Role kDown = {"mlp.down_proj.weight", "ffn_down.weight"};

// Tensors that say nothing the config does not: RoPE frequencies that old converters stored, and
// the factors read_llama_config has taken already.
bool is_harmless(std::string_view name) {
  return name == "rope_freqs.weight" || name.ends_with(".rotary_emb.inv_freq");
}

Part part_of(std::string_view name) {
  if (name == kEmbedding.hf || name == kEmbedding.gguf) return Part::embedding;
  for (const Role& role : {kOutputNorm, kOutput}) {
    if (name == role.hf || name == role.gguf) return Part::head;
  }
  for (const Role& role : {kFfnNorm, kGate, kUp, kDown}) {
    if (name.ends_with(role.hf) || name.ends_with(role.gguf)) return Part::dense;
  }
  return Part::attention;
}

// Hands out tensors by role and remembers which were asked for.
class Roles {
 public:
  explicit Roles(const Checkpoint& checkpoint)
      : checkpoint_(&checkpoint), gguf_(checkpoint.container() == Container::gguf) {}
  // Lists instead: BF16 under the names of Hugging Face.
  explicit Roles(std::vector<TensorSpec>& specs) : specs_(&specs) {}

  Result<TensorView> take(const Role& role, const Shape& expected) {
    return take_named(std::string(word(role)), expected);
  }
  Result<TensorView> take(size_t layer, const Role& role, const Shape& expected) {
    return take_named(fmt::format("{}{}.{}", word(kLayerPrefix), layer, word(role)), expected);
  }
  Result<std::optional<TensorView>> take_if(bool wanted, size_t layer, const Role& role,
                                            const Shape& expected) {
    if (!wanted) return std::optional<TensorView>();
    return std::optional<TensorView>(TRY(take(layer, role, expected)));
  }
  void ignore(const Role& role) { used_.insert(std::string(word(role))); }

  // Every tensor of the checkpoint was taken.
  Result<void> check_all_used() const {
    for (const NamedTensor& tensor : checkpoint_->tensors()) {
      if (used_.contains(tensor.name) || is_harmless(tensor.name)) continue;
      return Error::unsupported(
          tensor_thing(checkpoint_->files()[tensor.file], tensor.name),
          fmt::format("of shape {} has no place in the model the config describes",
                      tensor.view.shape.text()));
    }
    return {};
  }

 private:
  std::string_view word(const Role& role) const { return gguf_ ? role.gguf : role.hf; }

  Result<TensorView> take_named(std::string name, const Shape& expected) {
    if (specs_ != nullptr) {
      specs_->push_back({name, DType::bf16, expected, part_of(name)});
      return TensorView{DType::bf16, expected, nullptr};
    }
    const std::string thing = tensor_thing(checkpoint_->path(), name);
    const TensorView* view = checkpoint_->find(name);
    if (view == nullptr) {
      return Error::corrupt(
          thing, fmt::format("is missing, config asks for one of shape {}", expected.text()));
    }
    if (view->shape != expected) {
      return Error::corrupt(
          thing, fmt::format("file has {}, config says {}", view->shape.text(), expected.text()));
    }
    if (!dtype_info(view->dtype).decodable) {
      return Error::unsupported(thing, fmt::format("is stored as {}, which are no weights",
                                                   dtype_info(view->dtype).name));
    }
    used_.insert(std::move(name));
    return *view;
  }

  const Checkpoint* checkpoint_ = nullptr;
  std::vector<TensorSpec>* specs_ = nullptr;
  bool gguf_ = false;
  std::set<std::string, std::less<>> used_;
};

Result<LlamaTensors::Layer> read_layer(Roles& roles, size_t n, const LlamaConfig& config) {
  const uint64_t hidden = config.hidden;
  const uint64_t inner = config.intermediate;
  const uint64_t head = config.head_dim;
  const uint64_t queries = uint64_t{config.heads} * head;
  const uint64_t keys = uint64_t{config.kv_heads} * head;
  LlamaTensors::Layer layer;
  layer.attn_norm = TRY(roles.take(n, kAttnNorm, {hidden}));
  layer.q = TRY(roles.take(n, kQ, {queries, hidden}));
  layer.k = TRY(roles.take(n, kK, {keys, hidden}));
  layer.v = TRY(roles.take(n, kV, {keys, hidden}));
  layer.o = TRY(roles.take(n, kO, {hidden, queries}));
  layer.q_bias = TRY(roles.take_if(config.qkv_bias, n, kQBias, {queries}));
  layer.k_bias = TRY(roles.take_if(config.qkv_bias, n, kKBias, {keys}));
  layer.v_bias = TRY(roles.take_if(config.qkv_bias, n, kVBias, {keys}));
  layer.o_bias = TRY(roles.take_if(config.output_bias, n, kOBias, {hidden}));
  layer.q_norm = TRY(roles.take_if(config.qk_norm, n, kQNorm, {head}));
  layer.k_norm = TRY(roles.take_if(config.qk_norm, n, kKNorm, {head}));
  layer.ffn_norm = TRY(roles.take(n, kFfnNorm, {hidden}));
  layer.gate = TRY(roles.take(n, kGate, {inner, hidden}));
  layer.up = TRY(roles.take(n, kUp, {inner, hidden}));
  layer.down = TRY(roles.take(n, kDown, {hidden, inner}));
  return layer;
}

Result<LlamaTensors> read_all(Roles& roles, const LlamaConfig& config) {
  LlamaTensors tensors;
  const Shape vocabulary = {config.vocab, config.hidden};
  tensors.embedding = TRY(roles.take(kEmbedding, vocabulary));
  tensors.output_norm = TRY(roles.take(kOutputNorm, {config.hidden}));
  if (config.tied_embeddings) {
    tensors.output = tensors.embedding;
    roles.ignore(kOutput);  // read_llama_config has found it equal to the embedding
  } else {
    tensors.output = TRY(roles.take(kOutput, vocabulary));
  }
  tensors.layers.reserve(config.layers);
  for (size_t n = 0; n < config.layers; ++n) {
    tensors.layers.push_back(TRY(read_layer(roles, n, config)));
  }
  return tensors;
}

}  // namespace

Result<LlamaTensors> read_llama_tensors(const Checkpoint& checkpoint, const LlamaConfig& config) {
  Roles roles(checkpoint);
  LlamaTensors tensors = TRY(read_all(roles, config));
  tensors.qk_interleaved =
      checkpoint.container() == Container::gguf && config.family == Family::llama;
  TRY(roles.check_all_used());
  return tensors;
}

std::vector<TensorSpec> llama_specs(const LlamaConfig& config) {
  std::vector<TensorSpec> specs;
  Roles roles(specs);
  check(read_all(roles, config).ok(), "listing does not fail");
  return specs;
}

std::vector<TensorSpec> found_llama_specs(const Checkpoint& checkpoint) {
  std::vector<TensorSpec> specs;
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    specs.push_back(
        {tensor.name, tensor.view.dtype, tensor.view.shape, part_of(tensor.name), tensor.bytes});
  }
  return specs;
}

}  // namespace deepinfer::weights
