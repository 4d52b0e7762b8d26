#pragma once

// DeepSeek-R1 and its distills (Llama and Qwen bodies, DeepSeek's control tokens).
//   BOS, the system text, then User text or Assistant text EOS for each message, then Assistant.
// Earlier answers lose their thinking; newer templates open the next one with "<think>\n".
// Source: chat templates of the published models.

#include "recipe/layout.h"

namespace deepinfer::recipe {

Layout deepseek_r1_layout(const LayoutEvidence& evidence);

}  // namespace deepinfer::recipe
