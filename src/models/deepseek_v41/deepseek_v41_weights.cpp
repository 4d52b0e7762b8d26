#include "models/deepseek_v41/deepseek_v41_weights.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <utility>

#include "models/deepseek_v41/v41_cache.h"
#include "models/experts/resident_experts.h"
#include "models/experts/streamed_experts.h"

namespace deepinfer::models {
namespace {

using weights::DeepseekV41Config;

Result<V41Compressor> load_compressor(const weights::V41CompressorTensors& tensors,
                                      const std::string& name, MatrixLoader& loader) {
  V41Compressor compressor;
  compressor.kv = TRY(loader.matrix(tensors.kv, name + " kv"));
  if (tensors.gate.has_value()) {
    compressor.gate = TRY(loader.matrix(*tensors.gate, name + " gate"));
  }
  compressor.norm = TRY(loader.floats(tensors.norm, name + " norm"));
  compressor.index_key = TRY(loader.matrix(tensors.index_key, name + " index key"));
  compressor.index_key_norm = TRY(loader.floats(tensors.index_key_norm, name + " index key norm"));
  return compressor;
}

Result<V41Indexer> load_indexer(const weights::V41IndexerTensors& tensors, const std::string& name,
                                MatrixLoader& loader) {
  V41Indexer indexer;
  indexer.q_b = TRY(loader.matrix(tensors.q_b, name + " q_b"));
  indexer.weights = TRY(loader.matrix(tensors.weights, name + " weights"));
  return indexer;
}

Result<EngramLayer> load_engram(const weights::EngramTensors& tensors, const std::string& name,
                                MatrixLoader& loader) {
  EngramLayer engram;
  engram.table = tensors.table;
  engram.kv = TRY(loader.matrix(tensors.kv, name + " kv"));
  const std::vector<float> q = TRY(loader.floats(tensors.q_weight, name + " q weight"));
  engram.weight = TRY(loader.floats(tensors.k_weight, name + " k weight"));
  for (size_t i = 0; i < q.size(); ++i) engram.weight[i] *= q[i];
  return engram;
}

// moe: of the backbone, or of the drafter; source_layer: of the experts' source.
Result<V41Layer> load_layer(const weights::V41BlockTensors& tensors,
                            const DeepseekV41Config& config, const weights::MoeConfig& moe,
                            size_t source_layer, const std::string& where, MatrixLoader& loader) {
  V41Layer layer;
  layer.attn_norm = TRY(loader.floats(tensors.attn_norm, where + " attention norm"));
  layer.ffn_norm = TRY(loader.floats(tensors.ffn_norm, where + " ffn norm"));
  layer.hc_attn =
      TRY(load_hyper(tensors.hc_attn, false, where + " attention hyper-connection", loader));
  layer.hc_ffn = TRY(load_hyper(tensors.hc_ffn, false, where + " ffn hyper-connection", loader));
  layer.attention = TRY(load_latent_layer(
      tensors.attention, v41_block_shape(config, KvMode::official), where + " attention", loader));
  if (tensors.compressor.has_value()) {
    layer.compressor = TRY(load_compressor(*tensors.compressor, where + " compressor", loader));
  }
  if (tensors.indexer.has_value()) {
    layer.indexer = TRY(load_indexer(*tensors.indexer, where + " indexer", loader));
  }
  if (tensors.engram.has_value()) {
    layer.engram = TRY(load_engram(*tensors.engram, where + " engram", loader));
  }
  layer.moe = TRY(Moe::load(tensors.moe, moe, kernels::RouterScore::sqrt_softplus, config.hidden,
                            source_layer, where, loader));
  return layer;
}

weights::MoeConfig draft_moe(const DeepseekV41Config& config) {
  weights::MoeConfig moe = config.moe;
  moe.experts = config.dspark.experts;
  moe.per_token = config.dspark.experts_per_token;
  return moe;
}

Result<V41Dspark> load_dspark(const weights::DeepseekV41Tensors& tensors,
                              const DeepseekV41Config& config, MatrixLoader& loader) {
  const weights::DsparkTensors& from = *tensors.dspark;
  V41Dspark dspark;
  for (size_t i = 0; i < tensors.dspark_stages.size(); ++i) {
    dspark.stages.push_back(
        TRY(load_layer(tensors.dspark_stages[i], config, draft_moe(config),
                       tensors.layers.size() + i, "drafter stage " + std::to_string(i), loader)));
  }
  dspark.main_proj = TRY(loader.matrix(from.main_proj, "drafter main projection"));
  dspark.main_norm = TRY(loader.floats(from.main_norm, "drafter main norm"));
  dspark.norm = TRY(loader.floats(from.norm, "drafter norm"));
  TRY(check_scaled(from.markov_embed, "drafter markov embedding"));
  dspark.markov_embed = from.markov_embed;
  dspark.markov_head = TRY(loader.matrix(from.markov_head, "drafter markov head"));
  dspark.confidence = TRY(loader.floats(from.confidence, "drafter confidence"));
  return dspark;
}

// Of the layers, then of the drafter's stages: the order of the experts' source.
std::vector<const weights::V41BlockTensors*> all_blocks(
    const weights::DeepseekV41Tensors& tensors) {
  std::vector<const weights::V41BlockTensors*> blocks;
  for (const weights::V41BlockTensors& layer : tensors.layers) blocks.push_back(&layer);
  for (const weights::V41BlockTensors& stage : tensors.dspark_stages) blocks.push_back(&stage);
  return blocks;
}

// What the loader will be asked for, near enough for a progress line.
size_t total_bytes(const weights::DeepseekV41Tensors& tensors, bool streamed) {
  size_t bytes = tensors.output.bytes();
  for (const weights::V41BlockTensors* block : all_blocks(tensors)) {
    const weights::LatentAttentionTensors& a = block->attention;
    for (const ScaledView* view : {&a.q_a, &a.q_b, &a.kv, &a.o_a, &a.o_b}) bytes += view->bytes();
    bytes += block->moe.shared.bytes() + block->moe.router.bytes() + block->hc_attn.fn.bytes() +
             block->hc_ffn.fn.bytes();
    if (streamed) continue;
    for (const weights::ExpertTensors& expert : block->moe.experts) bytes += expert.bytes();
  }
  return bytes;
}

Result<std::unique_ptr<ExpertSource>> load_experts(const weights::DeepseekV41Tensors& tensors,
                                                   MatrixLoader& loader) {
  auto experts = std::make_unique<ResidentExperts>();
  for (size_t i = 0; i < tensors.layers.size(); ++i) {
    TRY(experts->add_layer(tensors.layers[i].moe.experts, "layer " + std::to_string(i), loader));
  }
  for (size_t i = 0; i < tensors.dspark_stages.size(); ++i) {
    TRY(experts->add_layer(tensors.dspark_stages[i].moe.experts,
                           "drafter stage " + std::to_string(i), loader));
  }
  return std::unique_ptr<ExpertSource>(std::move(experts));
}

Result<std::unique_ptr<ExpertSource>> stream_experts(const weights::Checkpoint& checkpoint,
                                                     const weights::DeepseekV41Tensors& tensors,
                                                     const DeepseekV41Config& config,
                                                     const ModelOptions& options,
                                                     ThreadPool& pool) {
  std::vector<std::span<const weights::ExpertTensors>> layers;
  for (const weights::V41BlockTensors* block : all_blocks(tensors)) {
    layers.emplace_back(block->moe.experts);
  }
  return std::unique_ptr<ExpertSource>(TRY(StreamedExperts::create(
      checkpoint, layers, pool,
      {.target = options.target,
       .budget_bytes = options.stream_bytes,
       .per_token = std::max<size_t>(config.moe.per_token, config.dspark.experts_per_token),
       .disk = {}})));
}

weights::DiskRange first_row(const weights::Checkpoint& checkpoint, const TensorView& view) {
  const weights::Checkpoint::Place place = checkpoint.locate(view.data);
  return {.file = static_cast<uint32_t>(place.file),
          .offset = place.offset,
          .bytes = view.row_size(),
          .target = nullptr};
}

// Engram tables through a disk reader of their own: a step reads a few hundred bytes in thousands
// of places, and a file that shrank or a failing disk is an error of the step.
Result<void> open_engram(const weights::Checkpoint& checkpoint, DeepseekV41Weights& loaded) {
  bool any = false;
  for (V41Layer& layer : loaded.layers) {
    if (!layer.engram) continue;
    any = true;
    const ScaledView& table = layer.engram->table;
    layer.engram->codes = first_row(checkpoint, table.codes);
    if (table.scaled()) layer.engram->scales = first_row(checkpoint, table.scales);
  }
  if (any) {
    loaded.engram_reader =
        TRY(weights::DiskReader::open(checkpoint.files(), {.direct = false, .queue_depth = 64}));
  }
  return {};
}

// What one decoded token reads.
Result<size_t> step_bytes(const DeepseekV41Weights& loaded,
                          const weights::DeepseekV41Tensors& tensors,
                          const DeepseekV41Config& config, kernels::Target target) {
  const weights::ExpertTensors& expert = tensors.layers.front().moe.experts.front();
  const std::array<size_t, 3> packed = TRY(packed_bytes(expert, target));
  const size_t of_expert = std::reduce(packed.begin(), packed.end());
  size_t bytes = loaded.output.bytes();
  for (const V41Layer& layer : loaded.layers) {
    bytes += layer.bytes() + of_expert * config.moe.per_token;
  }
  return bytes;
}

}  // namespace

size_t V41Layer::bytes() const {
  size_t bytes = attention.bytes() + hc_attn.bytes() + hc_ffn.bytes() + moe.router.bytes() +
                 moe.shared.bytes();
  if (compressor.has_value()) {
    bytes += compressor->kv.bytes() + compressor->gate.bytes() + compressor->index_key.bytes();
  }
  if (indexer.has_value()) bytes += indexer->q_b.bytes() + indexer->weights.bytes();
  if (engram.has_value()) bytes += engram->kv.bytes();
  return bytes;
}

LatentBlockShape v41_block_shape(const DeepseekV41Config& config, KvMode kv) {
  return {.hidden = config.hidden,
          .heads = config.heads,
          .head_dim = config.head_dim,
          .q_lora = config.q_lora,
          .o_lora = config.o_lora,
          .o_groups = config.o_groups,
          .norm_eps = static_cast<float>(config.norm_eps),
          .norm_heads = false,
          .plain_o_a_input = false,
          .window = v41_window_format(config, kv)};
}

Result<DeepseekV41Weights> load_deepseek_v41_weights(const weights::Checkpoint& checkpoint,
                                                     const DeepseekV41Config& config,
                                                     const ModelOptions& options, ThreadPool& pool,
                                                     const Progress& progress) {
  const weights::DeepseekV41Tensors tensors =
      TRY(weights::read_deepseek_v41_tensors(checkpoint, config));
  const bool streamed = options.stream_bytes != 0;
  DeepseekV41Weights loaded;
  MatrixLoader loader(options.target, pool, loaded.arena, progress, total_bytes(tensors, streamed));
  for (size_t i = 0; i < tensors.layers.size(); ++i) {
    loaded.layers.push_back(TRY(load_layer(tensors.layers[i], config, config.moe, i,
                                           "layer " + std::to_string(i), loader)));
  }
  loaded.experts = options.stream_bytes == 0
                       ? TRY(load_experts(tensors, loader))
                       : TRY(stream_experts(checkpoint, tensors, config, options, pool));
  TRY(open_engram(checkpoint, loaded));
  loaded.norm = TRY(loader.floats(tensors.norm, "output norm"));
  loaded.output = TRY(loader.matrix(tensors.output, "output head"));
  loaded.embedding = tensors.embedding;
  if (!dtype_info(loaded.embedding.dtype).decodable) {
    return Error::unsupported(
        "embedding", "no decoder for " + std::string(dtype_info(loaded.embedding.dtype).name));
  }
  checkpoint.expect_single_rows(loaded.embedding);
  if (tensors.dspark.has_value()) {
    loaded.dspark = TRY(load_dspark(tensors, config, loader));
    checkpoint.expect_single_rows(loaded.dspark->markov_embed.codes);
  }
  loaded.bytes_per_step = TRY(step_bytes(loaded, tensors, config, options.target));
  loaded.resident = loader.bytes() + (streamed ? loaded.experts->resident_bytes() : 0);
  loaded.choices = loader.choices();
  return loaded;
}

}  // namespace deepinfer::models
