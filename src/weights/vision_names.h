#pragma once

// Which tensors of a checkpoint belong to the vision part (roles: VisionTensors of
// weights/deepseek/deepseek_tensors.h). Source: spec vision.md section 11. Threads: pure functions.

#include <string_view>

namespace deepinfer::weights {

// vision.*, aligner.*, image_start, image_end, image_newline, each maybe after "model.".
// read_vision_tensors() takes them all or fails, so other readers may pass over them.
bool is_vision_name(std::string_view name);

}  // namespace deepinfer::weights
