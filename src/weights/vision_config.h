#pragma once

// The vision part of a V4.1 configuration: vision_config, and what a vision-only load needs of the
// text part. Source: spec vision.md section 11.
//
// Threads: pure functions.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "weights/checkpoint.h"
#include "weights/deepseek/deepseek_config.h"
#include "weights/json_fields.h"

namespace deepinfer::weights {

// fields: the members of vision_config. The geometry fields are positive whole numbers,
// max_wh_ratio null or at least 1, heads divide hidden_size into heads of a multiple of 8 values.
Result<VisionConfig> parse_vision_config(const Fields& fields);

// Enough to open the encoder alone.
struct VisionPart {
  VisionConfig vision;
  uint32_t text_hidden = 0;
  uint32_t vocab = 0;
  uint32_t image_token = 0;  // the placeholder's id, below vocab
};
// The text of config.json: image_token_id, vision_config, and vocab_size and hidden_size of
// text_config (or beside it). All are required here; nothing else is read.
Result<VisionPart> parse_vision_part(std::string_view json, const std::string& source);
Result<VisionPart> read_vision_part(const Checkpoint& checkpoint);

}  // namespace deepinfer::weights
