#include "weights/vision_config.h"

#include <fmt/format.h>

#include <optional>

#include "weights/config_reader.h"

namespace deepinfer::weights {
namespace {

// Far above any vision model; they bound what a picture can make the encoder allocate.
constexpr uint64_t kPatchLimit = 256;
constexpr uint64_t kDownsampleLimit = 16;
constexpr uint64_t kImageTokenLimit = 1u << 16;
constexpr uint64_t kMinPixelLimit = uint64_t{1} << 26;
// A span holds its start, one cell, one newline and its end.
constexpr uint64_t kImageTokenFloor = 4;

Result<void> check_heads(const Fields& fields, const VisionConfig& config) {
  if (config.hidden % config.heads == 0 && config.hidden / config.heads % 8 == 0) return {};
  return fields.conflict(
      "hidden_size",
      fmt::format("is {}, expected {} heads (num_attention_heads) of a multiple of 8 values",
                  config.hidden, config.heads));
}

}  // namespace

Result<VisionConfig> parse_vision_config(const Fields& fields) {
  VisionConfig config;
  config.layers = TRY(fields.count("num_hidden_layers", kLayerLimit));
  config.hidden = TRY(fields.count("hidden_size", kWidthLimit));
  config.heads = TRY(fields.count("num_attention_heads", kHeadLimit));
  config.intermediate = TRY(fields.count("intermediate_size", kWidthLimit));
  config.patch = TRY(fields.count("patch_size", kPatchLimit));
  config.downsample = TRY(fields.count("downsample_ratio", kDownsampleLimit));
  config.max_image_tokens = static_cast<uint32_t>(
      TRY(fields.whole("max_image_tokens", kImageTokenFloor, kImageTokenLimit)));
  config.min_pixels = TRY(fields.whole("min_pixels", 1, kMinPixelLimit));
  if (fields.has("max_wh_ratio")) {
    const double ratio = TRY(fields.number("max_wh_ratio"));
    if (ratio < 1.0) {
      return Error::corrupt(fields.thing("max_wh_ratio"),
                            fmt::format("is {}, expected null or at least 1", ratio));
    }
    config.max_wh_ratio = ratio;
  }
  config.rope_theta = fields.has("rope_theta") ? TRY(fields.positive("rope_theta")) : 10000.0;
  TRY(check_heads(fields, config));
  const uint64_t merged = uint64_t{config.hidden} * config.downsample * config.downsample;
  if (merged > kWidthLimit) {
    return fields.conflict("downsample_ratio",
                           fmt::format("is {}, with hidden_size {} a merged cell has {} values, "
                                       "the limit is {}",
                                       config.downsample, config.hidden, merged, kWidthLimit));
  }
  return config;
}

Result<VisionPart> parse_vision_part(std::string_view json, const std::string& source) {
  simdjson::dom::parser parser;
  const Fields fields = TRY(parse_fields(parser, json, source));
  const std::optional<Fields> vision = TRY(fields.child("vision_config"));
  if (!vision) return Error::corrupt(fields.thing("vision_config"), "is missing");
  const std::optional<Fields> inner = TRY(fields.child("text_config"));
  const Fields& text = inner ? *inner : fields;
  VisionPart part;
  part.vision = TRY(parse_vision_config(*vision));
  part.text_hidden = TRY(text.count("hidden_size", kWidthLimit));
  part.vocab = TRY(text.count("vocab_size", kVocabLimit));
  part.image_token = static_cast<uint32_t>(TRY(fields.whole("image_token_id", 1, kVocabLimit)));
  if (part.image_token >= part.vocab) {
    return fields.conflict("image_token_id",
                           fmt::format("is {}, vocab_size is {}", part.image_token, part.vocab));
  }
  return part;
}

Result<VisionPart> read_vision_part(const Checkpoint& checkpoint) {
  const std::optional<std::string> json = checkpoint.side_file("config.json");
  if (!json) return Error::not_found(checkpoint.path(), "has no config.json");
  return parse_vision_part(*json, checkpoint.path() + "/config.json");
}

}  // namespace deepinfer::weights
