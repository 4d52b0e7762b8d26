#pragma once

// Anthropic Messages to the common form.
//
//   MessagesBody body = TRY(read_messages_body(text));
//   Request request = TRY(accept_messages(body, options));
//
// Fields that are not listed here are ignored. Source: specification of the recipe, section 8.
// Threads: plain values and pure functions.

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "recipe/conversion.h"
#include "recipe/refusal.h"

namespace deepinfer::recipe {

struct MessagesBlock {
  enum class Kind {
    text,
    image,
    document,
    thinking,
    tool_use,
    tool_result,
    tool_reference,
    tool_addition,
    server_tool,  // server_tool_use, web_search_tool_result
  };
  enum class Source { base64, url, file };

  Kind kind = Kind::text;
  std::string text;                // text, thinking
  std::string id;                  // of the call that a tool_use makes or a tool_result answers
  std::string name;                // of a tool
  Json input;                      // tool_use
  Source source = Source::base64;  // image
  std::string media_type;          // image; document, may be empty
  std::string data;                // base64, or the URL
  // tool_result: its content; text is one block. A list may be empty.
  std::vector<MessagesBlock> content;
};

// Text, or blocks.
using MessagesContent = std::variant<std::string, std::vector<MessagesBlock>>;

struct MessagesMessage {
  Role role = Role::user;  // user, assistant or system
  MessagesContent content;
};

struct MessagesTool {
  std::string name;
  std::optional<std::string> type;  // a tool of the server, which needs nothing else
  std::optional<std::string> description;
  Json input_schema;
  std::optional<bool> defer_loading;
};

struct MessagesBody {
  std::string model;
  std::vector<MessagesMessage> messages;
  std::optional<MessagesContent> system;  // text blocks only
  std::optional<bool> thinking;
  std::optional<EffortWord> effort;
  std::optional<std::vector<MessagesTool>> tools;
  std::optional<ChoiceAsked> tool_choice;
  std::optional<std::vector<std::string>> stop_sequences;
  std::optional<float> temperature, top_p;
  std::optional<uint32_t> max_tokens;
  std::optional<bool> stream;
  std::optional<std::string> user_id;  // of metadata
};

Accepted<MessagesBody> read_messages_body(std::string_view text);
Accepted<Request> accept_messages(const MessagesBody& body, const ConversionOptions& options);

}  // namespace deepinfer::recipe
