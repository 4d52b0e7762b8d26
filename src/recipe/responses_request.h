#pragma once

// OpenAI Responses to the common form.
//
//   ResponsesBody body = TRY(read_responses_body(text));
//   ResponsesRequest asked = TRY(accept_responses(body, options));
//
// The response repeats parts of the request and splits the names of calls into namespace and tool:
// what that needs comes along. Fields that are not listed here are ignored. Source: specification
// of the recipe, section 9. Threads: plain values and pure functions.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "recipe/conversion.h"
#include "recipe/refusal.h"

namespace deepinfer::recipe {

struct ResponsesTool {
  enum class Kind { function, name_space, custom, tool_search, web_search, other };
  Kind kind = Kind::other;
  std::string name;
  std::optional<std::string> description;
  Json parameters;
  std::optional<bool> strict;
  std::optional<std::string> execution;     // tool_search: "client" or "server"
  Json search_context_size, user_location;  // web_search
  std::vector<ResponsesTool> members;       // name_space
};

struct ResponsesPart {
  enum class Kind { text, image, file };
  Kind kind = Kind::text;
  std::string text;
  std::optional<std::string> image_url, file_id;
  std::optional<ImageDetail> detail;
};

// Text, or parts.
using ResponsesContent = std::variant<std::string, std::vector<ResponsesPart>>;

struct ResponsesItem {
  enum class Kind {
    message,
    reasoning,
    call,
    custom_call,
    search_call,
    output,
    search_output,
    skipped
  };
  Kind kind = Kind::skipped;
  Role role = Role::user;              // message
  bool developer = false;              // message: the role was "developer"
  ResponsesContent content;            // message, output
  std::vector<std::string> reasoning;  // texts
  std::string call_id;                 // an output may lack it: see has_call_id
  bool has_call_id = true;
  std::string name, arguments;            // call; custom_call: the input; search_call: JSON
  std::optional<std::string> name_space;  // call
  std::vector<ResponsesTool> tools;       // search_output
};

struct ResponsesBody {
  std::string model;
  std::optional<std::variant<std::string, std::vector<ResponsesItem>>> input;
  std::optional<std::string> instructions, user;
  std::optional<std::vector<ResponsesTool>> tools;
  std::optional<ChoiceAsked> tool_choice;
  Json choice_echo = "auto";  // as it was asked
  bool choice_is_search = false;
  std::optional<EffortWord> effort;
  Json effort_echo, summary_echo, verbosity_echo;
  ResponseFormat format;
  bool format_strict = false;
  Json format_echo;  // null: text
  std::optional<float> temperature, top_p;
  std::optional<uint8_t> top_logprobs;
  std::optional<uint32_t> max_output_tokens;
  std::optional<bool> stream;
};

// What a response needs to know of its request.
struct ResponsesEcho {
  Json members = Json::object();  // instructions, max_output_tokens, reasoning, temperature, …
  // Converted name to namespace and local name.
  std::map<std::string, std::pair<std::string, std::string>, std::less<>> namespaces;
  std::set<std::string, std::less<>> custom_tools;
  bool tool_search = false;  // calls of "tool_search" are the client's
};

struct ResponsesRequest {
  Request request;
  ResponsesEcho echo;
};

Accepted<ResponsesBody> read_responses_body(std::string_view text);
Accepted<ResponsesRequest> accept_responses(const ResponsesBody& body,
                                            const ConversionOptions& options);

// A tool as a response repeats it; null for one that is left out.
Json echo_of(const ResponsesTool& tool);

}  // namespace deepinfer::recipe
