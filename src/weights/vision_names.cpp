#include "weights/vision_names.h"

#include <fmt/format.h>

#include <string>

#include "weights/deepseek/deepseek_roles.h"
#include "weights/deepseek/deepseek_tensors.h"

namespace deepinfer::weights {
namespace {

constexpr std::string_view kModelPrefix = "model.";

std::string_view without_prefix(std::string_view name) {
  if (name.starts_with(kModelPrefix)) name.remove_prefix(kModelPrefix.size());
  return name;
}

// Names are taken in full; every one is plain.
class VisionRoles {
 public:
  explicit VisionRoles(DeepseekRoles& roles) : roles_(roles) {}
  Result<TensorView> take(const std::string& name, const Shape& shape) {
    return roles_.plain(name, shape, DType::bf16);
  }

 private:
  DeepseekRoles& roles_;
};

Result<VisionTensors::Block> read_block(VisionRoles& roles, uint32_t n,
                                        const VisionConfig& config) {
  const uint64_t width = config.hidden, inner = config.intermediate;
  const auto name = [&](const char* part) { return fmt::format("vision.blocks.{}.{}", n, part); };
  VisionTensors::Block block;
  block.norm1 = TRY(roles.take(name("norm1.weight"), {width}));
  block.norm2 = TRY(roles.take(name("norm2.weight"), {width}));
  block.qkv = TRY(roles.take(name("attn.wqkv.weight"), {3 * width, width}));
  block.qkv_bias = TRY(roles.take(name("attn.wqkv.bias"), {3 * width}));
  block.o = TRY(roles.take(name("attn.wo.weight"), {width, width}));
  block.o_bias = TRY(roles.take(name("attn.wo.bias"), {width}));
  block.w1 = TRY(roles.take(name("mlp.w1.weight"), {2 * inner, width}));
  block.w2 = TRY(roles.take(name("mlp.w2.weight"), {width, inner}));
  return block;
}

}  // namespace

bool is_vision_name(std::string_view name) {
  const std::string_view role = without_prefix(name);
  return role.starts_with("vision.") || role.starts_with("aligner.") || role == "image_start" ||
         role == "image_end" || role == "image_newline";
}

Result<VisionTensors> read_vision_roles(DeepseekRoles& plain, const VisionConfig& config,
                                        uint32_t text_hidden) {
  VisionRoles roles(plain);
  plain.enter(Part::vision);
  const uint64_t width = config.hidden, text = text_hidden;
  const uint64_t patch = uint64_t{3} * config.patch * config.patch;
  const uint64_t merged = width * config.downsample * config.downsample;
  VisionTensors tensors;
  tensors.patch = TRY(roles.take("vision.patch_embed.proj.weight", {width, patch}));
  tensors.patch_bias = TRY(roles.take("vision.patch_embed.proj.bias", {width}));
  tensors.blocks.reserve(config.layers);
  for (uint32_t n = 0; n < config.layers; ++n) {
    tensors.blocks.push_back(TRY(read_block(roles, n, config)));
  }
  tensors.norm = TRY(roles.take("vision.norm.weight", {width}));
  tensors.aligner1 = TRY(roles.take("aligner.w1.weight", {text, merged}));
  tensors.aligner1_bias = TRY(roles.take("aligner.w1.bias", {text}));
  tensors.aligner2 = TRY(roles.take("aligner.w2.weight", {text, text}));
  tensors.aligner2_bias = TRY(roles.take("aligner.w2.bias", {text}));
  tensors.image_start = TRY(roles.take("image_start", {text}));
  tensors.image_end = TRY(roles.take("image_end", {text}));
  tensors.image_newline = TRY(roles.take("image_newline", {text}));
  return tensors;
}

Result<VisionTensors> read_vision_tensors(const Checkpoint& checkpoint, const VisionConfig& config,
                                          uint32_t text_hidden) {
  DeepseekRoles roles(checkpoint, QuantizationConfig());
  VisionTensors tensors = TRY(read_vision_roles(roles, config, text_hidden));
  TRY(roles.check_all_used([](std::string_view name) { return !is_vision_name(name); }));
  return tensors;
}

}  // namespace deepinfer::weights
