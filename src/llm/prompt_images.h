#pragma once

// PromptImages: picture files to what the engine takes for a prompt: ids in which every placeholder
// has become the positions of its picture, and the rows of those positions.
//
// The ids there stay the placeholder's: nobody reads them, and they are ids of the vocabulary.
// Source: spec vision.md section 7; more or fewer placeholders than images are refused
// (ImageCountMismatch).
//
// Threads: expand() from one thread at a time; it uses the pool.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/engine.h"
#include "image/limits.h"
#include "image/prepare.h"
#include "llm/prompt.h"
#include "models/model.h"
#include "models/vision/vision_encoder.h"
#include "weights/checkpoint.h"
#include "weights/vision_config.h"

namespace deepinfer::llm {

struct PromptWithImages {
  std::vector<int32_t> ids;
  std::vector<engine::PromptImage> images;
};

// What a checkpoint says of pictures in prompts.
struct ImageRules {
  int32_t placeholder = 0;    // the id that stands for a picture
  size_t most_positions = 0;  // of one picture, which run in one step; 0: there is no encoder
};
// nullopt: no id stands for a picture.
Result<std::optional<ImageRules>> read_image_rules(const weights::Checkpoint& checkpoint);

class PromptImages {
 public:
  // Loads the encoder. The pool must outlive it. Fails (unsupported) when the checkpoint has no
  // vision part.
  static Result<std::unique_ptr<PromptImages>> open(const weights::Checkpoint& checkpoint,
                                                    const models::ModelOptions& options,
                                                    ThreadPool& pool);

  // options.decode.side_limit is set from the number of images.
  Result<PromptWithImages> expand(std::span<const int32_t> ids, std::span<const ImageFile> files,
                                  image::PrepareOptions options);

 private:
  PromptImages(weights::VisionPart part, std::unique_ptr<models::VisionEncoder> encoder)
      : part_(part), encoder_(std::move(encoder)) {}
  Result<engine::PromptImage> encode(const image::PreparedImage& prepared, size_t start);

  weights::VisionPart part_;
  image::ImageLimits limits_;
  std::unique_ptr<models::VisionEncoder> encoder_;
};

}  // namespace deepinfer::llm
