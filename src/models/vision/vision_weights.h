#pragma once

// VisionWeights: the tensors of V4.1's vision encoder and aligner as encode() reads them.
//
// C hidden, I intermediate, D text hidden, r downsample. Threads: read-only after load.

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"
#include "models/model.h"
#include "tensor/arena.h"
#include "weights/deepseek/deepseek_tensors.h"

namespace deepinfer::models {

struct VisionBlock {
  std::vector<float> norm1, norm2;  // [C]
  kernels::PackedMatrix qkv;        // [3C, C]
  std::vector<float> qkv_bias;      // [3C]
  kernels::PackedMatrix o;          // [C, C]
  std::vector<float> o_bias;        // [C]
  kernels::PackedMatrix w1;         // [2I, C], gate first
  kernels::PackedMatrix w2;         // [C, I]
};

struct VisionWeights {
  Arena arena;                    // of the packed matrices
  kernels::PackedMatrix patch;    // [C, 3 * patch * patch]
  std::vector<float> patch_bias;  // [C]
  std::vector<VisionBlock> blocks;
  std::vector<float> norm;                                   // [C]
  kernels::PackedMatrix aligner1, aligner2;                  // [D, C * r * r], [D, D]
  std::vector<float> aligner1_bias, aligner2_bias;           // [D]
  std::vector<float> image_start, image_end, image_newline;  // [D]
  std::vector<kernels::Choice> choices;
};

// An error names the tensor by its role ("vision block 3 qkv").
Result<VisionWeights> load_vision_weights(const weights::VisionTensors& tensors,
                                          kernels::Target target, ThreadPool& pool,
                                          const Progress& progress);

}  // namespace deepinfer::models
