// DeepSeek-V4.1's configuration from config.json (spec v41.md, section 1): text_config inside the
// file, or its fields at the top.

#include <fmt/format.h>

#include <algorithm>

#include "weights/config_reader.h"
#include "weights/deepseek/deepseek_config.h"
#include "weights/deepseek/deepseek_config_parts.h"
#include "weights/deepseek/engram_primes.h"
#include "weights/vision_config.h"

namespace deepinfer::weights {
namespace {

Result<void> read_ratios(const Fields& text, uint32_t stages, DeepseekV41Config& config) {
  constexpr const char* kKey = "compress_ratios";
  if (!text.has(kKey)) return Error::corrupt(text.thing(kKey), "is missing");
  const std::vector<uint32_t> listed =
      TRY(text.amounts(kKey, kRatioLimit, kLayerLimit + kStageLimit));
  if (listed.size() != config.layers && listed.size() != config.layers + stages) {
    return text.conflict(kKey, fmt::format("has {} items, num_hidden_layers is {} and "
                                           "num_nextn_predict_layers {}",
                                           listed.size(), config.layers, stages));
  }
  for (size_t n = 0; n < listed.size(); ++n) {
    if (listed[n] == 0 || (n < config.layers && listed[n] <= 2)) continue;
    return Error::unsupported(text.thing(kKey),
                              fmt::format("item {} is {}, known are {}", n, listed[n],
                                          n < config.layers ? "0, 1, 2" : "0 for a draft stage"));
  }
  config.ratios.assign(listed.begin(), listed.begin() + config.layers);
  return {};
}

bool contains(const std::vector<uint32_t>& layers, uint32_t layer) {
  return std::ranges::binary_search(layers, layer);
}

// The last source at or before the layer, or null.
const uint32_t* source_of(const std::vector<uint32_t>& sources, uint32_t layer) {
  const auto next = std::ranges::upper_bound(sources, layer);
  return next == sources.begin() ? nullptr : &*(next - 1);
}

Result<void> check_sources_of(const Fields& text, const DeepseekV41Config& config, uint32_t layer) {
  const uint32_t* kv = source_of(config.kv_sources, layer);
  const uint32_t* index = source_of(config.index_sources, layer);
  if (kv == nullptr || index == nullptr) {
    const char* key = kv == nullptr ? "kv_source_layer_ids" : "index_source_layer_ids";
    return text.conflict(key, fmt::format("has no layer up to {}, whose compress_ratios is {}",
                                          layer, config.ratios[layer]));
  }
  if (config.ratios[*kv] != config.ratios[layer]) {
    return text.conflict("compress_ratios",
                         fmt::format("layer {} has {}, its source layer {} has {}", layer,
                                     config.ratios[layer], *kv, config.ratios[*kv]));
  }
  if (*index < *kv) {
    return text.conflict("index_source_layer_ids",
                         fmt::format("layer {} reads the selection of layer {} and the cache of "
                                     "layer {}: a source of keys must select too",
                                     layer, *index, *kv));
  }
  return {};
}

Result<void> read_sources(const Fields& text, DeepseekV41Config& config) {
  const bool compressed = std::ranges::any_of(config.ratios, [](uint32_t r) { return r != 0; });
  for (const char* key : {"kv_source_layer_ids", "index_source_layer_ids"}) {
    if (compressed && !text.has(key)) return Error::corrupt(text.thing(key), "is missing");
  }
  config.kv_sources = TRY(read_layer_list(text, "kv_source_layer_ids", config.layers));
  config.index_sources = TRY(read_layer_list(text, "index_source_layer_ids", config.layers));
  if (text.has("index_k_source_layer_ids") &&
      TRY(read_layer_list(text, "index_k_source_layer_ids", config.layers)) != config.kv_sources) {
    return Error::unsupported(text.thing("index_k_source_layer_ids"),
                              "differs from kv_source_layer_ids, known are equal ones");
  }
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    if (config.ratios[layer] != 0) {
      TRY(check_sources_of(text, config, layer));
      continue;
    }
    if (contains(config.kv_sources, layer) || contains(config.index_sources, layer)) {
      const char* key =
          contains(config.kv_sources, layer) ? "kv_source_layer_ids" : "index_source_layer_ids";
      return text.conflict(key, fmt::format("has layer {}, whose compress_ratios is 0", layer));
    }
  }
  return {};
}

// Layers from the first of ratio 1 on read one cache, that layer's own: what the official engine
// and ours build on (spec v41.md 4.9).
Result<void> check_decoder(const Fields& text, const DeepseekV41Config& config) {
  const uint32_t first = config.first_decoder_layer();
  for (uint32_t layer = first; layer < config.layers; ++layer) {
    if (config.ratios[layer] != 1) {
      return Error::unsupported(
          text.thing("compress_ratios"),
          fmt::format("layer {} has {} after layer {} with 1, known is 1 from there on", layer,
                      config.ratios[layer], first));
    }
    if (layer == first || !contains(config.kv_sources, layer)) continue;
    return Error::unsupported(
        text.thing("kv_source_layer_ids"),
        fmt::format("has layers {} and {} of ratio 1, known is one", first, layer));
  }
  return {};
}

Result<void> read_candidates(const Fields& text, DeepseekV41Config& config) {
  constexpr const char* kKey = "candidate_source_layer_id";
  if (!text.has(kKey)) return {};
  const uint32_t source = static_cast<uint32_t>(TRY(text.whole(kKey, 0, kLayerLimit)));
  config.candidate_blocks = TRY(text.count("candidate_topk_blocks", kTopkLimit));
  config.candidate_block = TRY(text.count("candidate_block_size", kTopkLimit));
  if (!contains(config.index_sources, source)) {
    return text.conflict(kKey,
                         fmt::format("is {}, which is not in index_source_layer_ids", source));
  }
  for (const uint32_t layer : config.index_sources) {
    if (layer <= source || config.kv_source_of(layer) == config.kv_source_of(source)) continue;
    return Error::unsupported(
        text.thing(kKey),
        fmt::format("is {}, layer {} selects after it from another cache "
                    "(layer {})",
                    source, layer, config.kv_sources[config.kv_source_of(layer)]));
  }
  config.candidate_source = source;
  return {};
}

// engram_num_embeddings says what the primes say.
Result<void> check_rows(const Fields& text, const EngramConfig& engram) {
  constexpr const char* kKey = "engram_num_embeddings";
  if (!text.has(kKey)) return {};
  const std::vector<uint32_t> stated = TRY(text.amounts(kKey, UINT32_MAX, kLayerLimit));
  const std::vector<uint64_t> rows = engram_rows(engram);
  if (std::ranges::equal(stated, rows)) return {};
  return text.conflict(kKey,
                       fmt::format("is [{}], the primes from engram_vocab_size {} sum up to "
                                   "[{}]",
                                   fmt::join(stated, ", "), engram.vocab, fmt::join(rows, ", ")));
}

Result<void> read_engram(const Fields& text, DeepseekV41Config& config) {
  EngramConfig& engram = config.engram;
  engram.layers = TRY(read_layer_list(text, "engram_layer_ids", config.layers));
  if (engram.layers.empty()) return {};
  engram.max_ngram =
      static_cast<uint32_t>(TRY(text.whole("engram_max_ngram_size", 2, kEngramNgramLimit)));
  engram.vocab = TRY(text.whole("engram_vocab_size", 1, kEngramVocabLimit));
  engram.heads = TRY(text.count("engram_n_heads", kEngramHeadLimit));
  engram.head_dim = TRY(text.count("engram_head_dim", kHeadLimit));
  const uint64_t primes = engram.layers.size() * (engram.max_ngram - 1) * engram.heads;
  if (primes > kEngramPrimeLimit) {
    return text.conflict(
        "engram_n_heads",
        fmt::format("is {}, with {} layers and n-grams up to {} that is {} tables, "
                    "the limit is {}",
                    engram.heads, engram.layers.size(), engram.max_ngram, primes,
                    kEngramPrimeLimit));
  }
  engram.pad_id = TRY(text.amount_or("engram_pad_token_id", kVocabLimit, engram.pad_id));
  engram.compressed_vocab = TRY(text.count("engram_compressed_vocab_size", kVocabLimit));
  if (engram.pad_id >= config.vocab) {
    return text.conflict("engram_pad_token_id",
                         fmt::format("is {}, vocab_size {}", engram.pad_id, config.vocab));
  }
  if (engram.compressed_vocab > config.vocab) {
    return text.conflict(
        "engram_compressed_vocab_size",
        fmt::format("is {}, vocab_size {}", engram.compressed_vocab, config.vocab));
  }
  return check_rows(text, engram);
}

Result<void> read_drafter(const Fields& text, uint32_t stages, DeepseekV41Config& config) {
  if (stages == 0) return {};
  TRY(text.require_flag("dspark_target_attn_input", true));
  config.dspark = TRY(read_dspark(text, config));
  config.dspark.stages = stages;
  config.dspark.experts = TRY(text.count("dspark_n_routed_experts", kExpertLimit));
  config.dspark.experts_per_token = TRY(text.count("dspark_num_experts_per_tok", kExpertLimit));
  if (config.dspark.experts_per_token > config.dspark.experts) {
    return text.conflict("dspark_num_experts_per_tok",
                         fmt::format("is {}, dspark_n_routed_experts {}",
                                     config.dspark.experts_per_token, config.dspark.experts));
  }
  return {};
}

Result<void> read_vision(const Fields& root, DeepseekV41Config& config) {
  if (root.has("image_token_id")) {
    const uint32_t id = TRY(root.amount_or("image_token_id", kVocabLimit, 0));
    if (id >= config.vocab) {
      return root.conflict("image_token_id", fmt::format("is {}, vocab_size {}", id, config.vocab));
    }
    config.image_token = id;
  }
  const std::optional<Fields> vision = TRY(root.child("vision_config"));
  if (!vision) return {};
  if (!config.image_token) {
    return Error::corrupt(root.thing("image_token_id"), "is missing, and there is a vision_config");
  }
  config.vision = TRY(parse_vision_config(*vision));
  return {};
}

// A field that is inside text_config and beside it says the same.
Result<void> check_repeats(const Fields& root, const Fields& text) {
  for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers"}) {
    if (!root.has(key) || !text.has(key)) continue;
    const uint64_t outer = TRY(root.whole(key, 0, UINT64_MAX));
    const uint64_t inner = TRY(text.whole(key, 0, UINT64_MAX));
    if (outer == inner) continue;
    return text.conflict(key, fmt::format("is {}, {} beside text_config {}", inner, key, outer));
  }
  return {};
}

bool has_prefix(const Checkpoint& checkpoint, std::string_view prefix) {
  const auto& tensors = checkpoint.tensors();
  const auto found = std::ranges::lower_bound(
      tensors, prefix, {}, [](const NamedTensor& tensor) { return std::string_view(tensor.name); });
  return found != tensors.end() && found->name.starts_with(prefix);
}

}  // namespace

uint32_t DeepseekV41Config::first_decoder_layer() const {
  return static_cast<uint32_t>(std::ranges::find(ratios, 1u) - ratios.begin());
}

uint64_t DeepseekV41Config::decoder_tail() const {
  const uint64_t decoders = layers - first_decoder_layer();
  return decoders == 0 ? 0 : decoders * (window - 1) + 1;
}

size_t DeepseekV41Config::kv_source_of(uint32_t layer) const {
  const uint32_t* source = source_of(kv_sources, layer);
  check(source != nullptr, "the layer has no source of keys");
  return static_cast<size_t>(source - kv_sources.data());
}

size_t DeepseekV41Config::index_source_of(uint32_t layer) const {
  const uint32_t* source = source_of(index_sources, layer);
  check(source != nullptr, "the layer has no source of selections");
  return static_cast<size_t>(source - index_sources.data());
}

Result<DeepseekV41Config> parse_deepseek_v41_config(std::string_view json,
                                                    const std::string& source) {
  simdjson::dom::parser parser;
  const Fields root = TRY(parse_fields(parser, json, source));
  DeepseekV41Config config;
  config.family = TRY(read_family(root));
  if (config.family != Family::deepseek_v41) {
    return Error::unsupported(source, fmt::format("is of the family {}, expected deepseek_v41",
                                                  family_name(config.family)));
  }
  const Fields text = TRY(root.child("text_config")).value_or(root);
  TRY(check_repeats(root, text));
  TRY(refuse_deepseek_options(text, "sqrtsoftplus"));
  TRY(text.require_flag("hc_shifted", true));
  TRY(read_model_fields(root, text, config));
  TRY(read_latent_attention(text, config));
  const uint32_t stages = TRY(text.amount_or("num_nextn_predict_layers", kStageLimit, 0));
  TRY(read_ratios(text, stages, config));
  TRY(read_sources(text, config));
  TRY(check_decoder(text, config));
  config.moe = TRY(read_ungrouped_moe(text));
  TRY(check_expert_count(config.layers, config.moe.experts, source));
  config.indexer = TRY(read_indexer(text, config.rope_dim));
  TRY(read_candidates(text, config));
  config.hyper = TRY(read_hyper(text));
  TRY(read_engram(text, config));
  const TwoRopes ropes = TRY(read_two_ropes(text, config.rope_dim));
  config.rope = ropes.rope;
  config.compress_rope = ropes.compress_rope;
  config.fp4_sparse_kv = TRY(text.flag_or("use_fp4_sparse_kv", true));
  TRY(read_drafter(text, stages, config));
  TRY(read_vision(root, config));
  config.quantization = TRY(read_quantization(root, MatrixStorage::fp8_32));
  return config;
}

Result<DeepseekV41Config> read_deepseek_v41_config(const Checkpoint& checkpoint) {
  if (checkpoint.container() == Container::gguf) {
    return Error::unsupported(checkpoint.path(),
                              "DeepSeek-V4.1 in GGUF: files name its tensors in "
                              "several ways, none of them settled",
                              "use the official safetensors");
  }
  const ConfigText file = config_text(checkpoint);
  DeepseekV41Config config = TRY(parse_deepseek_v41_config(file.text, file.source));
  TRY(add_generation_ids(checkpoint, config));
  // Text-only copies drop the vision part, others the drafter.
  const auto has = [&](const char* prefix) {
    return has_prefix(checkpoint, prefix) || has_prefix(checkpoint, std::string("model.") + prefix);
  };
  if (!has("mtp.")) config.dspark = {};
  if (!has("vision.")) config.vision.reset();
  return config;
}

}  // namespace deepinfer::weights
