#include "models/llama/llama_weights.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "weights/llama_names.h"

namespace deepinfer::models {
namespace {

std::string layer_role(size_t layer, const char* role) {
  return "layer " + std::to_string(layer) + " " + role;
}

// Packs one matrix after another, counting bytes for `progress` and collecting the choices.
class Packer {
 public:
  Packer(kernels::Target target, ThreadPool& pool, const Progress& progress, Arena& arena)
      : target_(target), pool_(pool), progress_(progress), arena_(arena) {}

  void expect(const TensorView& view) { total_ += view.bytes(); }

  Result<kernels::PackedMatrix> pack(const TensorView& view, const std::string& role) {
    Result<kernels::PackedMatrix> packed =
        kernels::PackedMatrix::pack(view, target_, pool_, &arena_);
    if (!packed.ok()) return renamed(packed.error(), role);
    TRY(note_choice(view));
    done_ += view.bytes();
    if (progress_) progress_(done_, total_);
    return packed;
  }

  std::vector<kernels::Choice> take_choices() { return std::move(choices_); }

 private:
  static Error renamed(Error error, const std::string& role) {
    error.what = error.thing + " " + error.what;
    error.thing = role;
    return error;
  }

  Result<void> note_choice(const TensorView& view) {
    kernels::Choice choice =
        TRY(kernels::PackedMatrix::explain(view.dtype, view.rows(), view.row_elements(), target_));
    const bool known = std::any_of(choices_.begin(), choices_.end(), [&](const auto& other) {
      return other.operation == choice.operation;
    });
    if (!known) choices_.push_back(std::move(choice));
    return {};
  }

  kernels::Target target_;
  ThreadPool& pool_;
  const Progress& progress_;
  Arena& arena_;
  size_t done_ = 0;
  size_t total_ = 0;
  std::vector<kernels::Choice> choices_;
};

// A vector of the file as floats.
Result<std::vector<float>> floats(const TensorView& view, const std::string& role) {
  if (!dtype_info(view.dtype).decodable) {
    return Error::unsupported(role, "no decoder for " + std::string(dtype_info(view.dtype).name));
  }
  std::vector<float> values(view.shape.elements());
  decode_row(view.dtype, view.data, values.data(), values.size());
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
  if (bad != values.end()) {
    return Error::corrupt(
        role, "element " + std::to_string(bad - values.begin()) + " is " + std::to_string(*bad));
  }
  return values;
}

Result<std::vector<float>> floats(const std::optional<TensorView>& view, const std::string& role) {
  if (!view.has_value()) return std::vector<float>();
  return floats(*view, role);
}

Result<LlamaLayer> load_layer(const weights::LlamaTensors::Layer& from, size_t index,
                              Packer& packer) {
  const auto role = [&](const char* name) { return layer_role(index, name); };
  LlamaLayer layer;
  layer.attention_norm = TRY(floats(from.attn_norm, role("attention norm")));
  layer.q = TRY(packer.pack(from.q, role("attention q")));
  layer.k = TRY(packer.pack(from.k, role("attention k")));
  layer.v = TRY(packer.pack(from.v, role("attention v")));
  layer.o = TRY(packer.pack(from.o, role("attention output")));
  layer.q_bias = TRY(floats(from.q_bias, role("attention q bias")));
  layer.k_bias = TRY(floats(from.k_bias, role("attention k bias")));
  layer.v_bias = TRY(floats(from.v_bias, role("attention v bias")));
  layer.o_bias = TRY(floats(from.o_bias, role("attention output bias")));
  layer.q_norm = TRY(floats(from.q_norm, role("attention q norm")));
  layer.k_norm = TRY(floats(from.k_norm, role("attention k norm")));
  layer.ffn_norm = TRY(floats(from.ffn_norm, role("ffn norm")));
  layer.gate = TRY(packer.pack(from.gate, role("ffn gate")));
  layer.up = TRY(packer.pack(from.up, role("ffn up")));
  layer.down = TRY(packer.pack(from.down, role("ffn down")));
  return layer;
}

}  // namespace

LlamaWidths llama_widths(const weights::LlamaConfig& config) {
  return {.hidden = config.hidden,
          .query = size_t{config.heads} * config.head_dim,
          .key_value = size_t{config.kv_heads} * config.head_dim,
          .intermediate = config.intermediate};
}

size_t LlamaWeights::bytes() const {
  size_t bytes = output.bytes();
  for (const LlamaLayer& layer : layers) bytes += layer.bytes();
  return bytes;
}

void LlamaWeights::embed(size_t id, float* out) const {
  if (tied) {
    output.decode_row(id, out);
  } else {
    decode_row(embedding.dtype, embedding.row(id), out, embedding.row_elements());
  }
}

Result<LlamaWeights> load_llama_weights(const weights::Checkpoint& checkpoint,
                                        const weights::LlamaConfig& config, kernels::Target target,
                                        ThreadPool& pool, const Progress& progress) {
  const weights::LlamaTensors tensors = TRY(weights::read_llama_tensors(checkpoint, config));
  LlamaWeights loaded;
  Packer packer(target, pool, progress, loaded.arena);
  for (const weights::LlamaTensors::Layer& layer : tensors.layers) {
    for (const TensorView* matrix :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      packer.expect(*matrix);
    }
  }
  packer.expect(tensors.output);

  loaded.layers.reserve(tensors.layers.size());
  for (size_t i = 0; i < tensors.layers.size(); ++i) {
    loaded.layers.push_back(TRY(load_layer(tensors.layers[i], i, packer)));
  }
  loaded.output_norm = TRY(floats(tensors.output_norm, "output norm"));
  loaded.output = TRY(packer.pack(tensors.output, "output head"));
  loaded.embedding = tensors.embedding;
  loaded.tied = tensors.output.data == tensors.embedding.data;
  if (!loaded.tied && !dtype_info(loaded.embedding.dtype).decodable) {
    return Error::unsupported(
        "embedding", "no decoder for " + std::string(dtype_info(loaded.embedding.dtype).name));
  }
  if (!loaded.tied) checkpoint.expect_single_rows(loaded.embedding);
  loaded.pairing =
      tensors.qk_interleaved ? kernels::RopePairing::interleaved : kernels::RopePairing::half_split;
  loaded.choices = packer.take_choices();
  return loaded;
}

}  // namespace deepinfer::models
