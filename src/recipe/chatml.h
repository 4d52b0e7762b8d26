#pragma once

// ChatML: SmolLM2-Instruct, Qwen2, Qwen2.5, Qwen3.
//   <|im_start|>role\ncontent<|im_end|>\n for each message, then <|im_start|>assistant\n.
// The default system line is the one that the model's own template holds; Qwen3 has none, and drops
// the thinking of earlier answers. Source: chat templates of the published models.

#include "recipe/layout.h"

namespace deepinfer::recipe {

Layout chatml_layout(const LayoutEvidence& evidence);

}  // namespace deepinfer::recipe
