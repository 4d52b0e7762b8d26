#include "models/packed_matrices.h"

#include <optional>
#include <utility>

#include "kernels/matmul.h"
#include "weights/deepseek/deepseek_tensors.h"
#include "weights/llama_names.h"

namespace deepinfer::models {
namespace {

class List {
 public:
  explicit List(kernels::Target target) : target_(target) {}

  std::vector<ScaledView> take() { return std::move(views_); }

  void add(const ScaledView& view) { views_.push_back(view); }
  void add(const std::optional<ScaledView>& view) {
    if (view) add(*view);
  }
  void add(const TensorView& view) {
    ScaledView matrix;
    matrix.codes = view;
    views_.push_back(matrix);
  }
  void add(const weights::ExpertTensors& expert) {
    if (expert.gate.codes.data == nullptr) return;
    add(expert.gate);
    add(expert.up);
    add(expert.down);
  }
  void add(const weights::MoeTensors& moe) {
    for (const weights::ExpertTensors& expert : moe.experts) add(expert);
    add(moe.shared);
  }
  // Groups of o_a are products of their own: it is packed where each starts with a panel.
  void add(const weights::LatentAttentionTensors& attention, uint32_t o_lora) {
    add(attention.q_a);
    add(attention.q_b);
    add(attention.kv);
    const Result<size_t> panel = kernels::PackedMatrix::panel_outputs(attention.o_a, target_);
    if (panel.ok() && o_lora % panel.value() == 0) add(attention.o_a);
    add(attention.o_b);
  }
  void add(const weights::CompressorTensors& compressor) {
    add(compressor.kv);
    add(compressor.gate);
  }
  void add(const weights::V4BlockTensors& block, uint32_t o_lora) {
    add(block.attention, o_lora);
    if (block.compressor) add(*block.compressor);
    if (block.indexer) {
      add(block.indexer->q_b);
      add(block.indexer->weights);
      add(block.indexer->compressor);
    }
    add(block.moe);
  }
  void add(const weights::V41BlockTensors& block, uint32_t o_lora) {
    add(block.attention, o_lora);
    if (block.compressor) {
      add(block.compressor->kv);
      add(block.compressor->gate);
      add(block.compressor->index_key);
    }
    if (block.indexer) {
      add(block.indexer->q_b);
      add(block.indexer->weights);
    }
    if (block.engram) add(block.engram->kv);
    add(block.moe);
  }
  // kv_b is not here: its halves are packed head by head.
  void add(const weights::V3LayerTensors& layer) {
    add(layer.q_a);
    add(layer.q_b);
    add(layer.kv_a);
    add(layer.o);
    if (layer.indexer) {
      add(layer.indexer->q_b);
      add(layer.indexer->key);
      add(layer.indexer->weights);
    }
    if (layer.dense) add(*layer.dense);
    if (layer.moe) add(*layer.moe);
  }

 private:
  kernels::Target target_;
  std::vector<ScaledView> views_;
};

Result<std::vector<ScaledView>> of_llama(const weights::Checkpoint& checkpoint,
                                         kernels::Target target) {
  const weights::LlamaConfig config = TRY(weights::read_llama_config(checkpoint));
  const weights::LlamaTensors tensors = TRY(weights::read_llama_tensors(checkpoint, config));
  List list(target);
  for (const weights::LlamaTensors::Layer& layer : tensors.layers) {
    for (const TensorView& view :
         {layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down}) {
      list.add(view);
    }
  }
  list.add(tensors.output);
  return list.take();
}

Result<std::vector<ScaledView>> of_v3(const weights::Checkpoint& checkpoint,
                                      kernels::Target target) {
  const auto config = TRY(weights::read_deepseek_v3_config(checkpoint));
  const auto tensors = TRY(weights::read_deepseek_v3_tensors(checkpoint, config));
  List list(target);
  for (const weights::V3LayerTensors& layer : tensors.layers) list.add(layer);
  if (!config.tied_embeddings) list.add(tensors.output);
  return list.take();
}

Result<std::vector<ScaledView>> of_v4(const weights::Checkpoint& checkpoint,
                                      kernels::Target target) {
  const auto config = TRY(weights::read_deepseek_v4_config(checkpoint));
  const auto tensors = TRY(weights::read_deepseek_v4_tensors(checkpoint, config));
  List list(target);
  for (const weights::V4BlockTensors& block : tensors.layers) list.add(block, config.o_lora);
  list.add(tensors.output);
  if (tensors.mtp) {
    list.add(tensors.mtp->block, config.o_lora);
    list.add(tensors.mtp->e_proj);
    list.add(tensors.mtp->h_proj);
  }
  if (tensors.dspark) {
    for (const weights::V4BlockTensors& block : tensors.dspark->v4_stages)
      list.add(block, config.o_lora);
    list.add(tensors.dspark->main_proj);
    list.add(tensors.dspark->markov_head);
  }
  return list.take();
}

Result<std::vector<ScaledView>> of_v41(const weights::Checkpoint& checkpoint,
                                       kernels::Target target) {
  const auto config = TRY(weights::read_deepseek_v41_config(checkpoint));
  const auto tensors = TRY(weights::read_deepseek_v41_tensors(checkpoint, config));
  List list(target);
  for (const weights::V41BlockTensors& block : tensors.layers) list.add(block, config.o_lora);
  for (const weights::V41BlockTensors& block : tensors.dspark_stages)
    list.add(block, config.o_lora);
  list.add(tensors.output);
  if (tensors.dspark) {
    list.add(tensors.dspark->main_proj);
    list.add(tensors.dspark->markov_head);
  }
  return list.take();
}

}  // namespace

Result<std::vector<ScaledView>> packed_matrices(const weights::Checkpoint& checkpoint,
                                                kernels::Target target) {
  switch (TRY(weights::read_family(checkpoint))) {
    case weights::Family::llama:
    case weights::Family::qwen2:
    case weights::Family::qwen3:
      return of_llama(checkpoint, target);
    case weights::Family::deepseek_v3:
    case weights::Family::deepseek_v32:
      return of_v3(checkpoint, target);
    case weights::Family::deepseek_v4:
      return of_v4(checkpoint, target);
    case weights::Family::deepseek_v41:
      return of_v41(checkpoint, target);
  }
  check(false, "family without matrices");
  return std::vector<ScaledView>{};
}

}  // namespace deepinfer::models
