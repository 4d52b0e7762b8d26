#pragma once

// TensorSpec: a tensor that the files of a model hold, before there is a file. The list for a
// configuration is made by the code that reads the tensors, so that `plan`, generators and readers
// agree.
//
// Threads: plain values.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"
#include "weights/checkpoint.h"
#include "weights/deepseek/deepseek_config.h"
#include "weights/model_config.h"

namespace deepinfer::weights {

// What a tensor is part of, as `plan` and `inspect` add up bytes.
enum class Part : uint8_t {
  embedding,
  head,          // output matrix, final norm, the head's hyper-connections
  attention,     // with its norms, compressors and hyper-connections
  engram,        // projections and weights of Engram
  engram_table,  // its tables: looked up by row
  dense,         // feed-forward parts without experts
  router,
  experts,  // routed
  shared_experts,
  draft,  // MTP layers, DSpark stages: everything but routed experts
  draft_experts,
  vision,
};
inline constexpr size_t kPartCount = static_cast<size_t>(Part::vision) + 1;
std::string_view part_name(Part part);  // "routed experts"

struct TensorSpec {
  std::string name;  // as the official safetensors call it
  DType dtype = DType::f32;
  Shape shape;  // as stored: FP4 codes are I8 [outputs, inputs / 2]
  Part part = Part::attention;
  uint64_t file_bytes = 0;  // what a file has for it; 0: there is no file

  uint64_t bytes() const;
};

// Every tensor of the official files, scales included. An error: a shape that no file can have
// (e.g. FP4 experts whose width is not a multiple of 32).
std::vector<TensorSpec> llama_specs(const LlamaConfig& config);  // BF16
Result<std::vector<TensorSpec>> deepseek_v3_specs(const DeepseekV3Config& config);
Result<std::vector<TensorSpec>> deepseek_v4_specs(const DeepseekV4Config& config);
Result<std::vector<TensorSpec>> deepseek_v41_specs(const DeepseekV41Config& config);

// Every tensor that a checkpoint has a role for, as the file names and stores it. Errors of the
// readers of the families.
std::vector<TensorSpec> found_llama_specs(const Checkpoint& checkpoint);
Result<std::vector<TensorSpec>> found_v3_specs(const Checkpoint& checkpoint,
                                               const DeepseekV3Config& config);
Result<std::vector<TensorSpec>> found_v4_specs(const Checkpoint& checkpoint,
                                               const DeepseekV4Config& config);
Result<std::vector<TensorSpec>> found_v41_specs(const Checkpoint& checkpoint,
                                                const DeepseekV41Config& config);

}  // namespace deepinfer::weights
