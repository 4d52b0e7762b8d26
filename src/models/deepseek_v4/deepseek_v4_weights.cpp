#include "models/deepseek_v4/deepseek_v4_weights.h"

#include <array>
#include <numeric>
#include <span>
#include <utility>

#include "models/experts/resident_experts.h"
#include "models/experts/streamed_experts.h"
#include "models/joined_half.h"

namespace deepinfer::models {
namespace {

std::string layer_name(size_t layer) { return "layer " + std::to_string(layer); }
std::string stage_name(size_t stage) { return "dspark stage " + std::to_string(stage); }

size_t file_bytes(const ScaledView& view) { return view.bytes(); }
size_t file_bytes(const weights::HyperTensors& hyper) {
  return hyper.fn.bytes() + hyper.base.bytes() + hyper.scale.bytes();
}
size_t file_bytes(const weights::CompressorTensors& compressor) {
  return compressor.ape.bytes() + compressor.kv.bytes() + compressor.gate.bytes() +
         compressor.norm.bytes();
}
size_t file_bytes(const weights::LatentAttentionTensors& attention) {
  return attention.q_a.bytes() + attention.q_norm.bytes() + attention.q_b.bytes() +
         attention.kv.bytes() + attention.kv_norm.bytes() + attention.sink.bytes() +
         attention.o_a.bytes() + attention.o_b.bytes();
}
size_t file_bytes(const weights::V4BlockTensors& block, bool streamed) {
  size_t bytes = block.attn_norm.bytes() + block.ffn_norm.bytes() + file_bytes(block.hc_attn) +
                 file_bytes(block.hc_ffn) + file_bytes(block.attention);
  if (block.compressor) bytes += file_bytes(*block.compressor);
  if (block.indexer) {
    bytes += block.indexer->q_b.bytes() + block.indexer->weights.bytes() +
             file_bytes(block.indexer->compressor);
  }
  bytes += block.moe.router.bytes() + block.moe.shared.bytes();
  if (block.moe.bias) bytes += block.moe.bias->bytes();
  if (block.moe.by_id) bytes += block.moe.by_id->bytes();
  if (streamed) return bytes;
  for (const weights::ExpertTensors& expert : block.moe.experts) bytes += expert.bytes();
  return bytes;
}

// Every block of the file, in the order of their layers in the expert source.
std::vector<const weights::V4BlockTensors*> all_blocks(const weights::DeepseekV4Tensors& tensors) {
  std::vector<const weights::V4BlockTensors*> blocks;
  for (const weights::V4BlockTensors& layer : tensors.layers) blocks.push_back(&layer);
  if (tensors.mtp) blocks.push_back(&tensors.mtp->block);
  if (tensors.dspark) {
    for (const weights::V4BlockTensors& stage : tensors.dspark->v4_stages) blocks.push_back(&stage);
  }
  return blocks;
}

size_t file_bytes(const weights::DeepseekV4Tensors& tensors, bool streamed) {
  size_t bytes = tensors.output.bytes() + tensors.norm.bytes() + file_bytes(tensors.head);
  for (const weights::V4BlockTensors* block : all_blocks(tensors)) {
    bytes += file_bytes(*block, streamed);
  }
  if (tensors.mtp) {
    const weights::V4MtpTensors& mtp = *tensors.mtp;
    bytes +=
        mtp.eh_proj ? file_bytes(*mtp.eh_proj) : file_bytes(mtp.e_proj) + file_bytes(mtp.h_proj);
    bytes += mtp.e_norm.bytes() + mtp.h_norm.bytes() + mtp.norm.bytes() + file_bytes(mtp.head);
  }
  if (tensors.dspark) {
    bytes += file_bytes(tensors.dspark->main_proj) + file_bytes(tensors.dspark->markov_head) +
             tensors.dspark->main_norm.bytes() + tensors.dspark->norm.bytes() +
             tensors.dspark->confidence.bytes();
    if (tensors.dspark->head) bytes += file_bytes(*tensors.dspark->head);
  }
  return bytes;
}

class BlockLoader {
 public:
  BlockLoader(const weights::DeepseekV4Config& config, const LatentBlockShape& shape,
              MatrixLoader& loader, ResidentExperts* resident)
      : config_(config), shape_(shape), loader_(loader), resident_(resident) {}

  // ratio: 0 for the drafters' blocks.
  Result<V4Block> load(const weights::V4BlockTensors& from, size_t ratio, const std::string& name) {
    V4Block block;
    block.attn_norm = TRY(loader_.floats(from.attn_norm, name + " attention norm"));
    block.ffn_norm = TRY(loader_.floats(from.ffn_norm, name + " ffn norm"));
    block.hc_attn =
        TRY(load_hyper(from.hc_attn, false, name + " attention hyper-connection", loader_));
    block.hc_ffn = TRY(load_hyper(from.hc_ffn, false, name + " ffn hyper-connection", loader_));
    block.attention = TRY(load_latent_layer(from.attention, shape_, name + " attention", loader_));
    if (ratio != 0) {
      check(from.compressor.has_value(), "compressor of a layer with a ratio");
      block.compressor = TRY(load_v4_compressor(*from.compressor, ratio, config_.head_dim,
                                                name + " compressor", loader_));
    }
    if (ratio == kOverlapRatio) {
      check(from.indexer.has_value(), "indexer of a layer of ratio 4");
      block.indexer = TRY(load_indexer(*from.indexer, name + " indexer"));
    }
    if (resident_ != nullptr) TRY(resident_->add_layer(from.moe.experts, name, loader_));
    block.moe = TRY(Moe::load(from.moe, config_.moe, kernels::RouterScore::sqrt_softplus,
                              config_.hidden, next_layer_++, name, loader_));
    return block;
  }

 private:
  Result<V4Indexer> load_indexer(const weights::V4IndexerTensors& from, const std::string& name) {
    V4Indexer indexer;
    indexer.q_b = TRY(loader_.matrix(from.q_b, name + " q_b"));
    indexer.weights = TRY(loader_.matrix(from.weights, name + " weights"));
    indexer.compressor = TRY(load_v4_compressor(from.compressor, kOverlapRatio, config_.indexer.dim,
                                                name + " compressor", loader_));
    return indexer;
  }

  const weights::DeepseekV4Config& config_;
  const LatentBlockShape& shape_;
  MatrixLoader& loader_;
  ResidentExperts* resident_;  // null: experts are streamed
  size_t next_layer_ = 0;      // of the expert source
};

Result<V4Mtp> load_mtp(const weights::V4MtpTensors& from, BlockLoader& blocks,
                       MatrixLoader& loader) {
  V4Mtp mtp;
  mtp.block = TRY(blocks.load(from.block, 0, "mtp"));
  const auto joined = [&](const ScaledView& own, uint64_t half, const char* name) {
    return from.eh_proj ? loader.matrix(JoinedHalf(*from.eh_proj, half).view(), name)
                        : loader.matrix(own, name);
  };
  mtp.e_proj = TRY(joined(from.e_proj, 0, "mtp e_proj"));
  mtp.h_proj = TRY(joined(from.h_proj, 1, "mtp h_proj"));
  mtp.e_norm = TRY(loader.floats(from.e_norm, "mtp embedding norm"));
  mtp.h_norm = TRY(loader.floats(from.h_norm, "mtp streams norm"));
  mtp.norm = TRY(loader.floats(from.norm, "mtp norm"));
  mtp.head = TRY(load_hyper(from.head, true, "mtp head hyper-connection", loader));
  return mtp;
}

Result<V4Dspark> load_dspark(const weights::DsparkTensors& from, BlockLoader& blocks,
                             MatrixLoader& loader) {
  V4Dspark dspark;
  for (size_t s = 0; s < from.v4_stages.size(); ++s) {
    dspark.stages.push_back(TRY(blocks.load(from.v4_stages[s], 0, stage_name(s))));
  }
  check(from.head.has_value(), "head of the last DSpark stage");
  dspark.main_proj = TRY(loader.matrix(from.main_proj, "dspark main_proj"));
  dspark.main_norm = TRY(loader.floats(from.main_norm, "dspark main norm"));
  dspark.norm = TRY(loader.floats(from.norm, "dspark norm"));
  dspark.head = TRY(load_hyper(*from.head, true, "dspark head hyper-connection", loader));
  dspark.markov_embed = from.markov_embed;
  dspark.markov_head = TRY(loader.matrix(from.markov_head, "dspark markov head"));
  dspark.confidence = TRY(loader.floats(from.confidence, "dspark confidence"));
  return dspark;
}

// Experts of all blocks through the slots of a bounded cache.
Result<std::unique_ptr<StreamedExperts>> stream_experts(const weights::Checkpoint& checkpoint,
                                                        const weights::DeepseekV4Tensors& tensors,
                                                        const weights::DeepseekV4Config& config,
                                                        const ModelOptions& options,
                                                        ThreadPool& pool) {
  std::vector<std::span<const weights::ExpertTensors>> layers;
  for (const weights::V4BlockTensors* block : all_blocks(tensors)) {
    layers.emplace_back(block->moe.experts);
  }
  return StreamedExperts::create(checkpoint, layers, pool,
                                 {.target = options.target,
                                  .budget_bytes = options.stream_bytes,
                                  .per_token = config.moe.per_token,
                                  .disk = {}});
}

// What one decoded token reads.
Result<size_t> step_bytes(const DeepseekV4Weights& loaded,
                          const weights::DeepseekV4Tensors& tensors,
                          const weights::DeepseekV4Config& config, kernels::Target target) {
  size_t bytes = loaded.output.bytes() + loaded.head.bytes();
  for (const V4Block& layer : loaded.layers) bytes += layer.bytes_without_experts();
  const weights::ExpertTensors& expert = tensors.layers.front().moe.experts.front();
  const std::array<size_t, 3> packed = TRY(packed_bytes(expert, target));
  const size_t of_expert = std::reduce(packed.begin(), packed.end());
  return bytes + of_expert * config.moe.per_token * loaded.layers.size();
}

}  // namespace

size_t V4Block::bytes_without_experts() const {
  size_t bytes = hc_attn.bytes() + hc_ffn.bytes() + attention.bytes() + moe.router.bytes();
  if (compressor) bytes += compressor->bytes();
  if (indexer) {
    bytes += indexer->q_b.bytes() + indexer->weights.bytes() + indexer->compressor.bytes();
  }
  if (moe.shared_width > 0) bytes += moe.shared.bytes();
  return bytes;
}

LatentBlockShape v4_latent_shape(const weights::DeepseekV4Config& config,
                                 kernels::LatentFormat window) {
  return {.hidden = config.hidden,
          .heads = config.heads,
          .head_dim = config.head_dim,
          .q_lora = config.q_lora,
          .o_lora = config.o_lora,
          .o_groups = config.o_groups,
          .norm_eps = static_cast<float>(config.norm_eps),
          .norm_heads = true,
          .plain_o_a_input = true,
          .window = window};
}

Result<DeepseekV4Weights> load_deepseek_v4_weights(const weights::Checkpoint& checkpoint,
                                                   const weights::DeepseekV4Config& config,
                                                   const LatentBlockShape& shape,
                                                   const ModelOptions& options, ThreadPool& pool,
                                                   const Progress& progress) {
  const weights::DeepseekV4Tensors tensors =
      TRY(weights::read_deepseek_v4_tensors(checkpoint, config));
  if (!dtype_info(tensors.embedding.dtype).decodable) {
    return Error::unsupported(
        "embedding", "no decoder for " + std::string(dtype_info(tensors.embedding.dtype).name));
  }
  const bool streamed = options.stream_bytes != 0;
  DeepseekV4Weights loaded;
  loaded.arena = std::make_unique<Arena>();
  MatrixLoader loader(options.target, pool, *loaded.arena, progress, file_bytes(tensors, streamed));
  auto resident = std::make_unique<ResidentExperts>();
  BlockLoader blocks(config, shape, loader, streamed ? nullptr : resident.get());
  for (size_t i = 0; i < tensors.layers.size(); ++i) {
    loaded.layers.push_back(TRY(blocks.load(tensors.layers[i], config.ratios[i], layer_name(i))));
  }
  if (tensors.mtp) loaded.mtp = TRY(load_mtp(*tensors.mtp, blocks, loader));
  if (tensors.dspark) loaded.dspark = TRY(load_dspark(*tensors.dspark, blocks, loader));
  loaded.head = TRY(load_hyper(tensors.head, true, "head hyper-connection", loader));
  loaded.norm = TRY(loader.floats(tensors.norm, "output norm"));
  loaded.output = TRY(loader.matrix(tensors.output, "output head"));
  loaded.embedding = tensors.embedding;
  checkpoint.expect_single_rows(loaded.embedding);
  loaded.bytes_per_step = TRY(step_bytes(loaded, tensors, config, options.target));
  loaded.resident = loader.bytes();
  if (streamed) {
    loaded.experts = TRY(stream_experts(checkpoint, tensors, config, options, pool));
    loaded.resident += loaded.experts->resident_bytes();
  } else {
    loaded.experts = std::move(resident);
  }
  loaded.choices = loader.choices();
  return loaded;
}

}  // namespace deepinfer::models
