#pragma once

// The tokenizer of a DeepSeek version from the file that is at hand.
//
//   text::Tokenizer tokenizer = TRY(deepseek_tokenizer(json, path, DeepSeekVersion::v41));
//
// V4.1 uses V4's vocabulary with other names for three of its control tokens: 128799 is System,
// 129264 is image, 129279 is image2. A file of V4 is read with those names when V4.1 is asked for;
// a file that has them already is taken as it is.
//
// Errors are those of Tokenizer::from_json. Threads: a pure function.

#include <string>
#include <string_view>

#include "base/result.h"
#include "recipe/deepseek_prompt.h"
#include "text/tokenizer.h"

namespace deepinfer::recipe {

Result<text::Tokenizer> deepseek_tokenizer(std::string_view json, std::string source,
                                           DeepSeekVersion version);

}  // namespace deepinfer::recipe
