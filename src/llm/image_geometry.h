#pragma once

// How a model's configuration wants pictures prepared.
//
// Threads: a pure function.

#include "image/layout.h"
#include "weights/deepseek/deepseek_config.h"

namespace deepinfer::llm {

inline image::Geometry image_geometry(const weights::VisionConfig& config) {
  return {.patch = config.patch,
          .downsample = config.downsample,
          .max_image_tokens = config.max_image_tokens,
          .min_pixels = config.min_pixels,
          .max_wh_ratio = config.max_wh_ratio};
}

}  // namespace deepinfer::llm
