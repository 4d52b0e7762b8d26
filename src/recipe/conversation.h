#pragma once

// Conversation: what a recipe turns into a prompt, in the form that all protocols share.
//
//   Conversation conversation;
//   conversation.messages.push_back({Role::user, "Hello"});
//
// Text is UTF-8. What stands in a message is always plain text: nothing in it becomes a control
// token, images have their place beside the text. Threads: plain values.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/json_tree.h"

namespace deepinfer::recipe {

enum class Role { system, user, assistant, tool, latest_reminder };

std::string_view role_name(Role role);
std::optional<Role> role_from_name(std::string_view name);

enum class ImageKind { url, data_url, bytes };
enum class ImageDetail { low, high, original, automatic };  // "auto" in the protocols

std::string_view image_kind_name(ImageKind kind);
std::string_view image_detail_name(ImageDetail detail);

// A picture that a message shows. The recipe never looks into it: who has the pixels gives sizes
// to the vision side as numbers.
struct Image {
  ImageKind kind = ImageKind::url;
  ImageDetail detail = ImageDetail::high;
  std::string source;  // the URL or data URL; empty for bytes
  std::string path;    // where it stood in the request, for errors: ".messages[2]"
  size_t offset = 0;   // byte of Content::text that it stands in front of
  bool operator==(const Image&) const = default;
};

// Text with images at places in it.
struct Content {
  std::string text;
  std::vector<Image> images;  // by offset

  Content() = default;
  Content(std::string plain) : text(std::move(plain)) {}
  Content(std::string_view plain) : text(plain) {}
  Content(const char* plain) : text(plain) {}

  bool empty() const { return text.empty() && images.empty(); }
  void append(std::string_view more) { text += more; }
  void append_image(Image image);  // at the end of the text so far
  void append_content(Content more);
  // The text with `mark` at the place of each image.
  std::string flattened(std::string_view mark) const;
  // The opposite: the first occurrences of `mark`, one for each image, are their places.
  static Content from_flattened(std::string_view text, std::vector<Image> images,
                                std::string_view mark);
  bool operator==(const Content&) const = default;
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text, never checked: models and clients send anything
  bool operator==(const ToolCall&) const = default;
};

struct Tool {
  std::string name;
  std::optional<std::string> description;
  Json parameters;             // a JSON schema, or null
  std::optional<bool> strict;  // arguments must follow the schema exactly
  bool defer_loading = false;  // known, but shown to the model only when a message brings it
  bool operator==(const Tool&) const = default;
};

struct Message {
  Role role = Role::user;
  Content content;
  std::optional<std::string> reasoning = {};             // assistant
  std::optional<std::vector<ToolCall>> tool_calls = {};  // assistant
  std::optional<std::string> tool_call_id = {};          // tool: the call that it answers
  bool prefix = false;                                   // assistant, last: to be continued
  std::optional<std::vector<Tool>> tools = {};           // system: tools added at this point
  bool operator==(const Message&) const = default;
};

enum class ToolChoice { automatic, none, required };
enum class Effort { low, high, xhigh, max };
enum class FormatKind { text, json_object, json_schema, regex };

std::string_view tool_choice_name(ToolChoice choice);
std::string_view effort_name(Effort effort);
std::string_view format_name(FormatKind kind);

struct ResponseFormat {
  FormatKind kind = FormatKind::text;
  Json schema;        // json_schema
  std::string regex;  // regex
  bool operator==(const ResponseFormat&) const = default;
};

struct Conversation {
  std::vector<Message> messages;
  bool thinking = true;
  std::vector<Tool> tools = {};
  ToolChoice tool_choice = ToolChoice::automatic;
  std::optional<Effort> effort = {};
  ResponseFormat format = {};
  bool operator==(const Conversation&) const = default;

  bool shows_tools() const { return !tools.empty() && tool_choice != ToolChoice::none; }
  // The last message is an assistant's that the model goes on writing.
  bool continues() const {
    return !messages.empty() && messages.back().role == Role::assistant && messages.back().prefix;
  }
};

}  // namespace deepinfer::recipe
