#pragma once

// The vision goldens for the tests of this folder: files, and what is known of each picture.

#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "image/layout.h"
#include "image/picture.h"

namespace deepinfer::image {

inline std::string golden_folder() {
  return std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/vision/";
}

inline nlohmann::json golden_json(const std::string& name) {
  std::ifstream stream(golden_folder() + name);
  return nlohmann::json::parse(stream);
}

inline std::vector<std::byte> golden_bytes(const std::string& name) {
  std::ifstream stream(golden_folder() + name, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline std::string digest_of(const Picture& picture) {
  return hex(sha256(std::span(picture.rgb.data(), picture.bytes())));
}

// Of the tiny checkpoint that the goldens were made with.
inline Geometry tiny_geometry() {
  return {.patch = 14, .downsample = 3, .max_image_tokens = 26, .min_pixels = 7056};
}

// [W, H, vit_w, vit_h, llm_w, llm_h, tokens]
inline Layout layout_of(const nlohmann::json& values) {
  return {.grid = {values[0], values[1]},
          .vit_w = values[2],
          .vit_h = values[3],
          .llm_w = values[4],
          .llm_h = values[5],
          .tokens = values[6]};
}

}  // namespace deepinfer::image
