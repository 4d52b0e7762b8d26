#include "models/deepseek_v3/deepseek_v3_weights.h"

#include <span>
#include <utility>

#include "models/experts/resident_experts.h"
#include "models/experts/streamed_experts.h"
#include "models/matrix_loader.h"
#include "weights/deepseek/deepseek_tensors.h"

namespace deepinfer::models {
namespace {

size_t file_bytes(const weights::V3LayerTensors& layer, bool streamed) {
  size_t bytes = layer.q_b.bytes() + layer.kv_a.bytes() + layer.o.bytes();
  for (const ScaledView* view :
       {layer.k_b ? &*layer.k_b : &layer.kv_b, layer.v_b ? &*layer.v_b : nullptr}) {
    if (view != nullptr) bytes += view->bytes();
  }
  if (layer.q_a) bytes += layer.q_a->bytes();
  if (layer.indexer) {
    bytes +=
        layer.indexer->q_b.bytes() + layer.indexer->key.bytes() + layer.indexer->weights.bytes();
  }
  if (layer.dense) bytes += layer.dense->bytes();
  if (layer.moe) {
    bytes += layer.moe->router.bytes();
    if (layer.moe->shared.gate.codes.data != nullptr) bytes += layer.moe->shared.bytes();
    if (!streamed) {
      for (const weights::ExpertTensors& expert : layer.moe->experts) bytes += expert.bytes();
    }
  }
  return bytes;
}

size_t file_bytes(const weights::DeepseekV3Tensors& tensors, bool streamed) {
  size_t bytes = tensors.output.bytes();
  for (const weights::V3LayerTensors& layer : tensors.layers) bytes += file_bytes(layer, streamed);
  return bytes;
}

Result<std::unique_ptr<ExpertSource>> stream_experts(const weights::Checkpoint& checkpoint,
                                                     const weights::DeepseekV3Tensors& tensors,
                                                     const weights::DeepseekV3Config& config,
                                                     const ModelOptions& options,
                                                     ThreadPool& pool) {
  std::vector<std::span<const weights::ExpertTensors>> layers;
  for (const weights::V3LayerTensors& layer : tensors.layers) {
    if (layer.moe) layers.emplace_back(layer.moe->experts);
  }
  return std::unique_ptr<ExpertSource>(
      TRY(StreamedExperts::create(checkpoint, layers, pool,
                                  {.target = options.target,
                                   .budget_bytes = options.stream_bytes,
                                   .per_token = config.moe.per_token,
                                   .disk = {}})));
}

class LayerLoader {
 public:
  // resident: null when the experts are streamed.
  LayerLoader(const weights::DeepseekV3Config& config, const MlaShape& shape, MatrixLoader& loader,
              ResidentExperts* resident)
      : config_(config), shape_(shape), loader_(loader), resident_(resident) {}

  Result<V3Layer> load(const weights::V3LayerTensors& from, const std::string& name) {
    V3Layer layer;
    layer.attention = TRY(load_mla_layer(from, shape_, name + " attention", loader_));
    layer.ffn_norm = TRY(loader_.floats(from.ffn_norm, name + " ffn norm"));
    if (from.dense) layer.dense = TRY(load_expert(*from.dense, name + " ffn", loader_));
    if (!from.moe) return layer;
    if (resident_ != nullptr) TRY(resident_->add_layer(from.moe->experts, name, loader_));
    layer.moe = TRY(Moe::load(
        *from.moe, config_.moe,
        config_.softmax_router ? kernels::RouterScore::softmax : kernels::RouterScore::sigmoid,
        config_.hidden, next_source_layer_++, name, loader_));
    return layer;
  }

 private:
  const weights::DeepseekV3Config& config_;
  const MlaShape& shape_;
  MatrixLoader& loader_;
  ResidentExperts* resident_;
  size_t next_source_layer_ = 0;
};

// What the chosen experts of a token hold in one layer, as in the file.
size_t chosen_bytes(const weights::DeepseekV3Tensors& tensors,
                    const weights::DeepseekV3Config& config) {
  size_t bytes = 0;
  for (const weights::V3LayerTensors& layer : tensors.layers) {
    if (layer.moe) bytes += layer.moe->experts.front().bytes() * config.moe.per_token;
  }
  return bytes;
}

}  // namespace

size_t V3Layer::bytes_without_experts() const {
  size_t bytes = attention.bytes();
  if (dense) bytes += dense->bytes();
  if (moe) bytes += moe->router.bytes();
  if (moe && moe->shared_width > 0) bytes += moe->shared.bytes();
  return bytes;
}

Result<DeepseekV3Weights> load_deepseek_v3_weights(const weights::Checkpoint& checkpoint,
                                                   const weights::DeepseekV3Config& config,
                                                   const MlaShape& shape,
                                                   const ModelOptions& options, ThreadPool& pool,
                                                   const Progress& progress) {
  const weights::DeepseekV3Tensors tensors =
      TRY(weights::read_deepseek_v3_tensors(checkpoint, config));
  if (!dtype_info(tensors.embedding.dtype).decodable) {
    return Error::unsupported(
        "embedding", "no decoder for " + std::string(dtype_info(tensors.embedding.dtype).name));
  }
  const bool streamed = options.stream_bytes != 0;
  DeepseekV3Weights loaded;
  loaded.arena = std::make_unique<Arena>();
  MatrixLoader loader(options.target, pool, *loaded.arena, progress, file_bytes(tensors, streamed));
  auto resident = std::make_unique<ResidentExperts>();
  LayerLoader layers(config, shape, loader, streamed ? nullptr : resident.get());
  for (size_t i = 0; i < tensors.layers.size(); ++i) {
    loaded.layers.push_back(TRY(layers.load(tensors.layers[i], "layer " + std::to_string(i))));
  }
  loaded.norm = TRY(loader.floats(tensors.norm, "output norm"));
  loaded.output = TRY(loader.matrix(tensors.output, "output head"));
  loaded.embedding = tensors.embedding;
  checkpoint.expect_single_rows(loaded.embedding);
  loaded.resident = loader.bytes();
  loaded.bytes_per_step = loaded.output.bytes() + chosen_bytes(tensors, config);
  for (const V3Layer& layer : loaded.layers) {
    loaded.bytes_per_step += layer.bytes_without_experts();
  }
  if (streamed) {
    loaded.experts = TRY(stream_experts(checkpoint, tensors, config, options, pool));
  } else {
    loaded.experts = std::move(resident);
  }
  loaded.choices = loader.choices();
  return loaded;
}

}  // namespace deepinfer::models
