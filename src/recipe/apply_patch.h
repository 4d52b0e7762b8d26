#pragma once

// The custom tool "apply_patch" of coding clients, as the function that the model sees: one text,
// the patch, and a description of its format. Source: the reference's wording, which the model was
// trained with.

#include <string_view>

#include "recipe/conversation.h"
#include "recipe/deepseek_prompt.h"

namespace deepinfer::recipe {

inline constexpr std::string_view kApplyPatchName = "apply_patch";

Tool apply_patch_tool(DeepSeekVersion version);

}  // namespace deepinfer::recipe
