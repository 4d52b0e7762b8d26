#pragma once

// What the two readers of a model's configuration share. Internal to the folder.
//
// Threads: any; pure functions.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "weights/gguf/metadata.h"
#include "weights/model_config.h"

namespace deepinfer::weights {

// No model comes near these; they keep a lying file from asking for absurd amounts of anything.
inline constexpr uint64_t kLayerLimit = 1024;
inline constexpr uint64_t kWidthLimit = 1u << 20;  // hidden, intermediate
inline constexpr uint64_t kHeadLimit = 4096;       // heads, and values of a head
inline constexpr uint64_t kVocabLimit = 1u << 24;
inline constexpr uint64_t kContextLimit = uint64_t{1} << 31;

// "llama" -> Family::llama: model_type of config.json.
std::optional<Family> family_from_name(std::string_view name);
// The family of general.architecture. Unknown ones and V4.1's are unsupported.
Result<Family> read_gguf_family(const Metadata& metadata, const std::string& source);

// The number of tokens listed, or vocab_size; and the ids of begin and end.
Result<uint32_t> read_gguf_vocab(const MetadataReader& reader, const std::string& prefix);
Result<void> read_gguf_ids(const MetadataReader& reader, ModelConfig& config);

// Everything but what only the tensors tell (tied embeddings, biases, rope_freqs).
Result<LlamaConfig> parse_gguf_llama_config(const Metadata& metadata, const std::string& source);

// The checks that do not depend on the dialect: multiples, ranges, ids inside the vocabulary.
Result<void> check_llama_config(const LlamaConfig& config, const std::string& source);

// YaRN's factor on cos and sin when the file gives none: 0.1 mscale ln(factor) + 1, 1 for
// factor <= 1 (arXiv 2309.00071, section 3.4).
double yarn_attention_factor(double factor, double mscale = 1.0);

}  // namespace deepinfer::weights
