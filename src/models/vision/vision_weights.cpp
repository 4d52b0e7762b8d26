#include "models/vision/vision_weights.h"

#include <string>
#include <utility>

#include "models/matrix_loader.h"

namespace deepinfer::models {
namespace {

size_t file_bytes(const weights::VisionTensors& tensors) {
  size_t bytes = 0;
  const auto count = [&](std::initializer_list<const TensorView*> views) {
    for (const TensorView* view : views) bytes += view->bytes();
  };
  count({&tensors.patch, &tensors.patch_bias, &tensors.norm, &tensors.aligner1,
         &tensors.aligner1_bias, &tensors.aligner2, &tensors.aligner2_bias, &tensors.image_start,
         &tensors.image_end, &tensors.image_newline});
  for (const weights::VisionTensors::Block& block : tensors.blocks) {
    count({&block.norm1, &block.norm2, &block.qkv, &block.qkv_bias, &block.o, &block.o_bias,
           &block.w1, &block.w2});
  }
  return bytes;
}

Result<VisionBlock> load_block(const weights::VisionTensors::Block& from, size_t index,
                               MatrixLoader& loader) {
  const auto name = [&](const char* part) {
    return "vision block " + std::to_string(index) + " " + part;
  };
  VisionBlock block;
  block.norm1 = TRY(loader.floats(from.norm1, name("norm1")));
  block.norm2 = TRY(loader.floats(from.norm2, name("norm2")));
  block.qkv = TRY(loader.matrix(from.qkv, name("qkv")));
  block.qkv_bias = TRY(loader.floats(from.qkv_bias, name("qkv bias")));
  block.o = TRY(loader.matrix(from.o, name("attention output")));
  block.o_bias = TRY(loader.floats(from.o_bias, name("attention output bias")));
  block.w1 = TRY(loader.matrix(from.w1, name("w1")));
  block.w2 = TRY(loader.matrix(from.w2, name("w2")));
  return block;
}

}  // namespace

Result<VisionWeights> load_vision_weights(const weights::VisionTensors& tensors,
                                          kernels::Target target, ThreadPool& pool,
                                          const Progress& progress) {
  VisionWeights loaded;
  MatrixLoader loader(target, pool, loaded.arena, progress, file_bytes(tensors));
  loaded.patch = TRY(loader.matrix(tensors.patch, "vision patch embedding"));
  loaded.patch_bias = TRY(loader.floats(tensors.patch_bias, "vision patch embedding bias"));
  loaded.blocks.reserve(tensors.blocks.size());
  for (size_t i = 0; i < tensors.blocks.size(); ++i) {
    loaded.blocks.push_back(TRY(load_block(tensors.blocks[i], i, loader)));
  }
  loaded.norm = TRY(loader.floats(tensors.norm, "vision norm"));
  loaded.aligner1 = TRY(loader.matrix(tensors.aligner1, "aligner w1"));
  loaded.aligner1_bias = TRY(loader.floats(tensors.aligner1_bias, "aligner w1 bias"));
  loaded.aligner2 = TRY(loader.matrix(tensors.aligner2, "aligner w2"));
  loaded.aligner2_bias = TRY(loader.floats(tensors.aligner2_bias, "aligner w2 bias"));
  loaded.image_start = TRY(loader.floats(tensors.image_start, "image_start"));
  loaded.image_end = TRY(loader.floats(tensors.image_end, "image_end"));
  loaded.image_newline = TRY(loader.floats(tensors.image_newline, "image_newline"));
  loaded.choices = loader.choices();
  return loaded;
}

}  // namespace deepinfer::models
