#include "llm/prompt_images.h"

#include <algorithm>
#include <cstring>

#include "image/span.h"
#include "llm/image_geometry.h"
#include "weights/deepseek/deepseek_config.h"
#include "weights/deepseek/deepseek_tensors.h"

namespace deepinfer::llm {

Result<std::optional<ImageRules>> read_image_rules(const weights::Checkpoint& checkpoint) {
  if (TRY(weights::read_family(checkpoint)) != weights::Family::deepseek_v41) {
    return std::optional<ImageRules>();
  }
  const weights::DeepseekV41Config config = TRY(weights::read_deepseek_v41_config(checkpoint));
  if (!config.image_token) return std::optional<ImageRules>();
  return std::optional<ImageRules>(
      {.placeholder = static_cast<int32_t>(*config.image_token),
       .most_positions = config.vision ? config.vision->max_image_tokens : 0});
}

Result<std::unique_ptr<PromptImages>> PromptImages::open(const weights::Checkpoint& checkpoint,
                                                         const models::ModelOptions& options,
                                                         ThreadPool& pool) {
  const std::optional<ImageRules> rules = TRY(read_image_rules(checkpoint));
  if (!rules || rules->most_positions == 0) {
    return Error::unsupported(checkpoint.path(), "has no vision part, it reads no images");
  }
  weights::VisionPart part = TRY(weights::read_vision_part(checkpoint));
  const weights::VisionTensors tensors =
      TRY(weights::read_vision_tensors(checkpoint, part.vision, part.text_hidden));
  auto encoder = TRY(
      models::VisionEncoder::create(tensors, part.vision, part.text_hidden, options.target, pool));
  return std::unique_ptr<PromptImages>(new PromptImages(part, std::move(encoder)));
}

Result<engine::PromptImage> PromptImages::encode(const image::PreparedImage& prepared,
                                                 size_t start) {
  const models::PatchGrid grid = {
      .rows = prepared.layout.vit_h, .columns = prepared.layout.vit_w, .patches = prepared.patches};
  const size_t floats = encoder_->cells(grid) * part_.text_hidden;
  Buffer rows = TRY(Buffer::create(floats * sizeof(float)));  // [cells][text_hidden]
  TRY(encoder_->encode(grid, rows.as<float>()));
  const auto owner = std::make_shared<const Buffer>(std::move(rows));
  Hash128 content;  // the digest tells pictures apart; half of it is enough for that
  static_assert(sizeof content <= sizeof prepared.digest);
  std::memcpy(&content, prepared.digest.data(), sizeof content);
  return engine::PromptImage{.start = start,
                             .embeddings = encoder_->span_embeddings(grid, owner->as<float>()),
                             .owner = owner,
                             .content = content};
}

Result<PromptWithImages> PromptImages::expand(std::span<const int32_t> ids,
                                              std::span<const ImageFile> files,
                                              image::PrepareOptions options) {
  std::vector<size_t> sizes;
  for (const ImageFile& file : files) sizes.push_back(file.bytes.size());
  TRY(image::check_request(limits_, sizes, "prompt"));
  options.decode.side_limit = limits_.side_for(files.size());
  std::vector<image::PreparedImage> prepared;
  std::vector<image::Layout> layouts;
  for (const ImageFile& file : files) {
    prepared.push_back(TRY(image::prepare_image(
        std::as_bytes(std::span(file.bytes)), image_geometry(part_.vision), options, file.place)));
    layouts.push_back(prepared.back().layout);
  }
  const auto placeholder = static_cast<int32_t>(part_.image_token);
  image::ExpandedPrompt expanded =
      TRY(image::expand_prompt(ids, layouts, placeholder, static_cast<int32_t>(part_.vocab),
                               image::Mismatch::refuse, "prompt"));
  PromptWithImages prompt = {.ids = std::move(expanded.ids), .images = {}};
  for (const image::ImageSpan& span : expanded.spans) {
    std::fill_n(prompt.ids.begin() + static_cast<std::ptrdiff_t>(span.start), span.count,
                placeholder);
    prompt.images.push_back(TRY(encode(prepared[span.image], span.start)));
    prepared[span.image].patches = {};
  }
  return prompt;
}

}  // namespace deepinfer::llm
