#pragma once

// The DeepSeek families in GGUF: `deepseek4` (V4) and `deepseek2` (V3, R1), whose keys and tensor
// names are settled. V4.1 (`deepseek41`) is refused: its names are not. Source: spec gguf.md.
// Internal to the folder.
//
// Threads: any; pure functions.

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "weights/deepseek/deepseek_config.h"
#include "weights/gguf/metadata.h"

namespace deepinfer::weights {

Result<DeepseekV4Config> parse_gguf_deepseek_v4_config(const Metadata& metadata,
                                                       const std::string& source);
Result<DeepseekV3Config> parse_gguf_deepseek_v3_config(const Metadata& metadata,
                                                       const std::string& source);

// "layers.3.attn.wq_a.weight" -> "blk.3.attn_q_a.weight"; nullopt when GGUF has no such tensor.
// layers: of the backbone; draft layers follow them.
std::optional<std::string> gguf_v4_name(std::string_view official, uint32_t layers);
std::optional<std::string> gguf_v3_name(std::string_view official);

}  // namespace deepinfer::weights
