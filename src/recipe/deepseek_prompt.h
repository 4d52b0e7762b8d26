#pragma once

// The prompts of DeepSeek V4 and V4.1.
//
//   PromptPieces prompt = render_deepseek(conversation, DeepSeekVersion::v41);
//   std::vector<int32_t> ids = TRY(prompt.encode(tokenizer));
//
// Rules that hold for both versions:
// - Reasoning of earlier answers stays exactly when the conversation shows tools.
// - The prompt of a conversation is a prefix of the prompt of the same conversation with more
//   turns, up to the last assistant header, as long as tools, format, effort and (V4) the system
//   messages stay: what differs between turns stands last.
// - Tool calls are written in DSML, nothing in names, keys or values is escaped.
// Rendering cannot fail; a control token that a tokenizer lacks shows in PromptPieces::encode.
// Source: specification of the DeepSeek prompt format, sections 3 and 4.
//
// Threads: pure functions.

#include <string_view>

#include "recipe/conversation.h"
#include "recipe/prompt_pieces.h"

namespace deepinfer::recipe {

enum class DeepSeekVersion { v4, v41 };

// Spellings of the control tokens. The bars are U+FF5C, the low lines U+2581.
struct DeepSeekTokens {
  std::string_view begin = "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>";
  std::string_view end = "<\uFF5Cend\u2581of\u2581sentence\uFF5C>";
  std::string_view system = "<\uFF5CSystem\uFF5C>";
  std::string_view user = "<\uFF5CUser\uFF5C>";
  std::string_view assistant = "<\uFF5CAssistant\uFF5C>";
  std::string_view reminder = "<\uFF5Clatest_reminder\uFF5C>";
  std::string_view think = "<think>";
  std::string_view end_think = "</think>";
  std::string_view dsml = "\uFF5CDSML\uFF5C";
  std::string_view image = "<\uFF5Cimage\uFF5C>";
};

PromptPieces render_deepseek(const Conversation& conversation, DeepSeekVersion version,
                             const DeepSeekTokens& tokens = {});

}  // namespace deepinfer::recipe
