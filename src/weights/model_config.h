#pragma once

// ModelConfig: what any model is, and LlamaConfig: a dense Llama-like one, the same from Hugging
// Face's config.json and from GGUF metadata. Required fields that are missing, of the wrong type or
// contradictory are named with both values; an architecture or option this program does not compute
// is an error, never ignored. The DeepSeek families: weights/deepseek/deepseek_config.h.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "weights/checkpoint.h"

namespace deepinfer::weights {

enum class Family { llama, qwen2, qwen3, deepseek_v3, deepseek_v32, deepseek_v4, deepseek_v41 };
std::string_view family_name(Family family);

// What everyone outside of a family needs to know; each family's own struct derives from it.
struct ModelConfig {
  Family family = Family::llama;
  uint32_t layers = 0;
  uint32_t hidden = 0;
  uint32_t vocab = 0;
  uint32_t context = 0;  // trained limit of positions
  double norm_eps = 1e-5;
  std::optional<uint32_t> bos_id;
  std::vector<uint32_t> eos_ids;
  bool operator==(const ModelConfig&) const = default;
};

enum class RopeScaling { none, linear, llama3, yarn };

// spec: Hugging Face modeling_rope_utils (llama3, yarn), GGUF rope.scaling.*.
struct RopeConfig {
  double theta = 10000.0;
  uint32_t dims = 0;  // rotated dimensions of a head
  RopeScaling scaling = RopeScaling::none;
  double factor = 1.0;
  double low_freq_factor = 1.0;     // llama3
  double high_freq_factor = 4.0;    // llama3
  double original_context = 0;      // llama3, yarn
  double beta_fast = 32.0;          // yarn
  double beta_slow = 1.0;           // yarn
  double attention_factor = 1.0;    // yarn: multiplies cos and sin
  std::vector<float> freq_factors;  // [dims/2] or empty; GGUF tensor rope_freqs.weight divides
  bool operator==(const RopeConfig&) const = default;
};

struct LlamaConfig : ModelConfig {
  uint32_t intermediate = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  RopeConfig rope;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool output_bias = false;
  bool qk_norm = false;  // qwen3: RMSNorm of every query and key head
  bool operator==(const LlamaConfig&) const = default;
};

// The family that config.json (model_type) or GGUF (general.architecture) names. An architecture
// that this program does not compute is an error (unsupported).
Result<Family> read_family(const Checkpoint& checkpoint);

// The facts of any family.
Result<ModelConfig> read_model_config(const Checkpoint& checkpoint);

// From GGUF metadata or config.json, whichever the checkpoint has. tied_embeddings and biases are
// confirmed against the tensors that exist; eos_ids also has those of generation_config.json, and
// GGUF's end-of-turn id.
Result<LlamaConfig> read_llama_config(const Checkpoint& checkpoint);

// The readers of the texts by themselves, for tests and `plan`. source is the file's path.
Result<LlamaConfig> parse_hf_llama_config(std::string_view json, const std::string& source);
// eos_token_id of config.json or generation_config.json: an id, a list of ids, or nothing.
Result<std::vector<uint32_t>> parse_hf_eos_ids(std::string_view json, const std::string& source);

}  // namespace deepinfer::weights
