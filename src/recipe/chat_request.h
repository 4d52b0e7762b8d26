#pragma once

// OpenAI Chat Completions to the common form.
//
//   ChatBody body = TRY(read_chat_body(text));
//   Request request = TRY(accept_chat(body, options));
//
// Fields that are not listed here are ignored, as the hosted service does. Source: specification of
// the recipe, section 7. Threads: plain values and pure functions.

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "recipe/conversion.h"
#include "recipe/refusal.h"

namespace deepinfer::recipe {

struct ChatPart {
  enum class Kind { text, image_url, file };
  Kind kind = Kind::text;
  std::string text;  // or the URL of an image
  ImageDetail detail = ImageDetail::high;
  std::optional<std::string> file_data, file_id, filename;
};

// Text, or parts.
using ChatContent = std::variant<std::string, std::vector<ChatPart>>;

struct ChatMessage {
  Role role = Role::user;
  std::optional<ChatContent> content;
  std::optional<std::string> reasoning_content;     // assistant
  std::optional<std::vector<ToolCall>> tool_calls;  // assistant
  std::optional<bool> prefix;                       // assistant
  std::optional<std::string> tool_call_id;          // tool
};

struct ChatFormat {
  FormatKind kind = FormatKind::text;
  Json schema;
  bool strict = false;
  std::string regex;
};

struct ChatBody {
  std::string model;
  std::vector<ChatMessage> messages;
  std::optional<std::vector<Tool>> tools;
  std::optional<ChoiceAsked> tool_choice;
  std::optional<bool> thinking;
  std::optional<EffortWord> reasoning_effort;
  std::optional<float> temperature, top_p, frequency_penalty, presence_penalty;
  std::optional<uint32_t> max_tokens;
  std::optional<uint64_t> seed;
  std::optional<uint8_t> n, top_logprobs;
  std::optional<std::vector<std::string>> stop;
  bool stop_is_text = false;  // a string, not a list: errors name it so
  std::optional<bool> stream, logprobs;
  std::optional<bool> include_usage;
  bool stream_options = false;  // there are some
  std::optional<ChatFormat> response_format;
};

Accepted<ChatBody> read_chat_body(std::string_view text);
Accepted<Request> accept_chat(const ChatBody& body, const ConversionOptions& options);

}  // namespace deepinfer::recipe
