#include "models/deepseek_v41/deepseek_v41.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "models/deepseek_v41/deepseek_v41_model.h"

namespace deepinfer::models {
namespace {

using weights::DeepseekV41Config;

Result<void> check_multiple(const char* name, uint32_t value, uint32_t of) {
  if (value != 0 && value % of == 0) return {};
  return Error::unsupported(
      name, std::to_string(value) + " is no positive multiple of " + std::to_string(of));
}

// What the blocks of the cache formats and this file's division of work ask for.
Result<void> check_shape(const DeepseekV41Config& config) {
  TRY(check_multiple("head_dim", config.head_dim, 32));
  TRY(check_multiple("hidden_size", config.hidden, 32));
  TRY(check_multiple("q_lora_rank", config.q_lora, 32));
  TRY(check_multiple("num_attention_heads", config.heads, config.o_groups));
  if (!config.kv_sources.empty()) TRY(check_multiple("index_head_dim", config.indexer.dim, 32));
  if (config.rope_dim > config.head_dim || config.rope_dim % 2 != 0) {
    return Error::invalid("qk_rope_head_dim", std::to_string(config.rope_dim) + " with head_dim " +
                                                  std::to_string(config.head_dim));
  }
  const uint32_t decoder = config.first_decoder_layer();
  for (uint32_t source : config.kv_sources) {
    if (source > decoder) {
      return Error::unsupported("kv_source_layer_ids",
                                "layer " + std::to_string(source) +
                                    " makes entries after the first decoder layer " +
                                    std::to_string(decoder));
    }
    if (std::find(config.index_sources.begin(), config.index_sources.end(), source) ==
        config.index_sources.end()) {
      return Error::unsupported(
          "index_source_layer_ids",
          "layer " + std::to_string(source) + " makes entries and does not select among them");
    }
  }
  return {};
}

Result<std::optional<EngramHash>> make_hash(const weights::Checkpoint& checkpoint,
                                            const DeepseekV41Config& config,
                                            const ModelOptions& options) {
  if (config.engram.layers.empty()) return std::optional<EngramHash>();
  if (const std::optional<std::string> text = checkpoint.side_file("engram.json")) {
    return std::optional<EngramHash>(TRY(
        EngramHash::parse(config.engram, config.vocab, *text, checkpoint.path() + "/engram.json")));
  }
  if (!options.engram_classes) {
    return Error::not_found("engram token map", checkpoint.path() + " has no engram.json",
                            "it can be made from tokenizer.json");
  }
  std::vector<int32_t> classes = TRY(options.engram_classes(config.vocab));
  return std::optional<EngramHash>(
      TRY(EngramHash::create(config.engram, config.vocab, std::move(classes))));
}

Result<void> check_tables(const EngramHash& hash, DeepseekV41Weights& weights) {
  size_t index = 0;
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    std::optional<EngramLayer>& engram = weights.layers[i].engram;
    if (!engram) continue;
    engram->index = index++;
    if (engram->table.outputs() != hash.table_rows(engram->index)) {
      return Error::invalid(in_layer(i, "engram table"),
                            "it has " + std::to_string(engram->table.outputs()) +
                                " rows, the primes sum up to " +
                                std::to_string(hash.table_rows(engram->index)));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> open_deepseek_v41(const weights::Checkpoint& checkpoint,
                                                 DeepseekV41Config config,
                                                 const ModelOptions& options, ThreadPool& pool,
                                                 const Progress& progress) {
  TRY(check_shape(config));
  std::optional<EngramHash> hash = TRY(make_hash(checkpoint, config, options));
  DeepseekV41Weights weights =
      TRY(load_deepseek_v41_weights(checkpoint, config, options, pool, progress));
  if (hash.has_value()) TRY(check_tables(*hash, weights));
  auto model = std::make_unique<DeepseekV41>(std::move(config), options, pool, std::move(weights));
  TRY(model->create(std::move(hash)));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace deepinfer::models
