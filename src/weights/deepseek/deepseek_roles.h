#pragma once

// DeepseekRoles: the tensors of a DeepSeek model by their official names, either looked up in a
// checkpoint and checked, or only listed (TensorSpec). The readers of the families are written
// once against it. Internal to the folder.
//
// Official names are those of the safetensors. `model.` in front of them, `self_attn` for `attn`
// and `mlp` for `ffn` of re-uploads are tolerated where the checkpoint uses them. GGUF names come
// from a Translation.
//
// Threads: one at a time.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "tensor/scaled_view.h"
#include "weights/checkpoint.h"
#include "weights/deepseek/deepseek_config.h"
#include "weights/deepseek/deepseek_tensors.h"
#include "weights/tensor_spec.h"

namespace deepinfer::weights {

// How the official files store a matrix.
enum class Storage : uint8_t {
  plain,             // BF16 by custom, any float format
  matrix,            // as QuantizationConfig::matrices says
  either,            // quantised or plain, as the file has it; listed as plain
  either_quantised,  // the same, listed as matrix
  expert,            // FP4 when QuantizationConfig::fp4_experts, else as matrix
  table,             // Engram: E4M3 with a UE8M0 scale per row and 32 inputs
};

// Official name without ".weight" -> the GGUF name; nullopt when GGUF has none.
using Translation = std::function<std::optional<std::string>(std::string_view official)>;

class DeepseekRoles {
 public:
  // Looks up in the checkpoint, which must outlive this.
  DeepseekRoles(const Checkpoint& checkpoint, const QuantizationConfig& quantization,
                Translation gguf = nullptr);
  // Lists what the official files hold; views have shapes and dtypes and no data.
  explicit DeepseekRoles(const QuantizationConfig& quantization);

  // What the next tensors belong to.
  void enter(Part part) { part_ = part; }
  void enter_experts(Part part) { expert_part_ = part; }

  // `name` in full. usual: how it is listed; a checkpoint may have any of F32, F16, BF16.
  Result<TensorView> plain(const std::string& name, const Shape& shape, DType usual);
  Result<TensorView> norm(const std::string& name, uint64_t width) {
    return plain(name, {width}, DType::bf16);
  }
  // Token tables: any whole numbers of 32 or 64 bits.
  Result<TensorView> integers(const std::string& name, const Shape& shape);
  // `base`.weight [outputs, inputs] with the scales beside it.
  Result<ScaledView> matrix(const std::string& base, uint64_t outputs, uint64_t inputs,
                            Storage storage = Storage::matrix);
  // Expert `index` of `count` below `base` ("layers.3.ffn.experts"): base.index.name, or in GGUF
  // a slice of one tensor [count, outputs, inputs].
  Result<ScaledView> expert(const std::string& base, const char* name, uint64_t index,
                            uint64_t count, uint64_t outputs, uint64_t inputs);
  // GGUF's [heads, rows, columns] as one matrix [heads * rows, columns].
  Result<ScaledView> stacked(const std::string& name, uint64_t heads, uint64_t rows,
                             uint64_t columns);
  // A copy that files may carry beside the original (V3's embedding in its draft layer): checked
  // for its shape and not read. Listed always.
  Result<void> copy(const std::string& name, const Shape& shape);

  bool has(const std::string& name) const;
  bool listing() const { return checkpoint_ == nullptr; }
  bool gguf() const { return gguf_ != nullptr; }

  // Every tensor of the checkpoint but those `other` claims was asked for.
  Result<void> check_all_used(const std::function<bool(std::string_view)>& other = nullptr) const;
  // What was asked for so far: listed, or found in the checkpoint under these names.
  std::vector<TensorSpec> specs() && { return std::move(specs_); }

 private:
  std::string file_name(const std::string& name) const;
  std::string thing(const std::string& name) const;
  Result<const TensorView*> take(const std::string& name, const std::string& expected);
  Result<TensorView> shaped(const std::string& name, const Shape& shape);
  Result<ScaledView> stored(const std::string& base, uint64_t outputs, uint64_t inputs,
                            Storage storage);
  Result<ScaledView> scaled(const std::string& base, const TensorView& codes, DType scale_dtype,
                            uint32_t tile_outputs, uint32_t tile_inputs);
  Result<ScaledView> read_fp8(const std::string& base, const Shape& shape);
  Result<ScaledView> read_fp4(const std::string& base, const Shape& shape);
  Result<ScaledView> list(const std::string& base, const Shape& shape, Storage storage);
  void claim(const std::string& name, const TensorView& view);
  void note(const std::string& name, DType dtype, const Shape& shape);
  const TensorView* find_scales(const std::string& base, std::string& name) const;

  const Checkpoint* checkpoint_ = nullptr;
  QuantizationConfig quantization_;
  Translation gguf_;
  std::string prefix_;      // "model." where every name has it
  bool self_attn_ = false;  // the file says self_attn and mlp
  bool mlp_ = false;
  Part part_ = Part::attention;
  Part expert_part_ = Part::experts;
  std::unordered_set<const TensorView*> used_;
  std::vector<TensorSpec> specs_;
};

// What V4 and V4.1 share below a layer's prefix ("layers.3.", "mtp.0."). D = hidden.
Result<HyperTensors> read_hyper(DeepseekRoles& roles, const std::string& prefix, uint64_t streams,
                                uint64_t hidden);
Result<HyperTensors> read_hyper_head(DeepseekRoles& roles, const std::string& prefix,
                                     uint64_t streams, uint64_t hidden);
template <class Config>
Result<LatentAttentionTensors> read_latent_tensors(DeepseekRoles& roles, const std::string& prefix,
                                                   const Config& config);
struct ExpertNames {
  const char* gate;
  const char* up;
  const char* down;
};
// Routed experts below `base`, each [width, hidden], then [hidden, width].
Result<std::vector<ExpertTensors>> read_experts(DeepseekRoles& roles, const std::string& base,
                                                const ExpertNames& names, uint64_t count,
                                                uint64_t hidden, uint64_t width);
// The vision part (implemented in vision_names.cpp); its tensors are plain.
Result<VisionTensors> read_vision_roles(DeepseekRoles& roles, const VisionConfig& config,
                                        uint32_t text_hidden);
// One feed-forward part, stored as matrices.
Result<ExpertTensors> read_feed_forward(DeepseekRoles& roles, const std::string& base,
                                        const ExpertNames& names, uint64_t hidden, uint64_t width);

}  // namespace deepinfer::weights
