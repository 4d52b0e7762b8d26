// Reads the body of a Responses request.

#include "recipe/body_reader.h"
#include "recipe/responses_request.h"

namespace deepinfer::recipe {
namespace {

template <class T>
Accepted<void> read_member(const JsonValue& value, std::string_view key, T& out) {
  const JsonValue* found = value.find(key);
  return found != nullptr ? read(*found, out) : missing_member(value, key);
}

template <class T>
Accepted<void> read_optional(const JsonValue& value, std::string_view key, std::optional<T>& out) {
  const JsonValue* found = value.find(key);
  return found != nullptr ? read(*found, out) : Accepted<void>();
}

const JsonValue* given(const JsonValue& value, std::string_view key) {
  const JsonValue* found = value.find(key);
  return found != nullptr && !found->is_null() ? found : nullptr;
}

}  // namespace

Accepted<void> read(const JsonValue& value, ResponsesTool& out);

namespace {

Accepted<void> read_function(const JsonValue& value, ResponsesTool& out) {
  out.kind = ResponsesTool::Kind::function;
  TRY(read_member(value, "name", out.name));
  TRY(read_optional(value, "description", out.description));
  if (const JsonValue* parameters = given(value, "parameters"))
    TRY(read(*parameters, out.parameters));
  return read_optional(value, "strict", out.strict);
}

Accepted<void> read_search_tool(const JsonValue& value, ResponsesTool& out) {
  out.kind = ResponsesTool::Kind::tool_search;
  out.name = "tool_search";
  if (const JsonValue* execution = given(value, "execution")) {
    TRY(read_word(*execution, {"client", "server"}));
    out.execution = std::string(execution->string().value());
  }
  TRY(read_optional(value, "description", out.description));
  const JsonValue* parameters = given(value, "parameters");
  return parameters != nullptr ? read(*parameters, out.parameters) : Accepted<void>();
}

Accepted<void> read_web_search(const JsonValue& value, ResponsesTool& out) {
  out.kind = ResponsesTool::Kind::web_search;
  if (const JsonValue* size = value.find("search_context_size"))
    TRY(read(*size, out.search_context_size));
  if (const JsonValue* location = value.find("user_location"))
    TRY(read(*location, out.user_location));
  return {};
}

}  // namespace

Accepted<void> read(const JsonValue& value, ResponsesTool& out) {
  const std::string_view type = TRY(read_type(value));
  if (type == "function") return read_function(value, out);
  if (type == "tool_search") return read_search_tool(value, out);
  if (type == "web_search" || type == "web_search_2025_08_26") return read_web_search(value, out);
  if (type == "custom") {
    out.kind = ResponsesTool::Kind::custom;
    return read_member(value, "name", out.name);
  }
  if (type != "namespace") return {};
  out.kind = ResponsesTool::Kind::name_space;
  TRY(read_member(value, "name", out.name));
  TRY(read_optional(value, "description", out.description));
  TRY(read_member(value, "tools", out.members));
  for (size_t i = 0; i < out.members.size(); ++i) {
    const bool fits = out.members[i].kind == ResponsesTool::Kind::function ||
                      out.members[i].kind == ResponsesTool::Kind::custom;
    if (!fits)
      return wrong_body(value.find("tools")->array().value()[i], "is neither function nor custom");
  }
  return {};
}

Accepted<void> read(const JsonValue& value, ResponsesPart& out) {
  const std::string_view type = TRY(read_type(value));
  if (type == "input_text" || type == "output_text") return read_member(value, "text", out.text);
  if (type == "input_file") {
    out.kind = ResponsesPart::Kind::file;
    return {};
  }
  if (type != "input_image")
    return wrong_body(value, "parts of the type " + std::string(type) + " are not known");
  out.kind = ResponsesPart::Kind::image;
  TRY(read_optional(value, "image_url", out.image_url));
  TRY(read_optional(value, "file_id", out.file_id));
  if (const JsonValue* detail = given(value, "detail")) {
    out.detail =
        static_cast<ImageDetail>(TRY(read_word(*detail, {"low", "high", "original", "auto"})));
  }
  return {};
}

Accepted<void> read(const JsonValue& value, ResponsesContent& out) {
  if (value.is_string()) {
    out = std::string(value.string().value());
    return {};
  }
  if (!value.is_array()) return wrong_body(value, "expected a string or an array");
  return read(value, out.emplace<std::vector<ResponsesPart>>());
}

namespace {

using Kind = ResponsesItem::Kind;

Accepted<void> read_message(const JsonValue& value, ResponsesItem& out) {
  out.kind = Kind::message;
  const JsonValue* role = value.find("role");
  if (role == nullptr) return missing_member(value, "role");
  const size_t word = TRY(read_word(*role, {"system", "user", "assistant", "developer"}));
  out.developer = word == 3;
  out.role = out.developer ? Role::system : static_cast<Role>(word);
  return read_member(value, "content", out.content);
}

Accepted<void> read_reasoning(const JsonValue& value, ResponsesItem& out) {
  out.kind = Kind::reasoning;
  if (const JsonValue* encrypted = value.find("encrypted_content"))
    TRY(read_unused_text(*encrypted, out));
  const JsonValue* content = given(value, "content");
  if (content == nullptr) return {};
  if (!content->is_array()) return wrong_body(*content, "expected an array");
  for (const JsonValue& part : content->array().value()) {
    if (!part.is_object()) return wrong_body(part, "expected an object");
    TRY(read_member(part, "text", out.reasoning.emplace_back()));
  }
  return {};
}

Accepted<void> read_call(const JsonValue& value, ResponsesItem& out) {
  out.kind = Kind::call;
  TRY(read_member(value, "call_id", out.call_id));
  TRY(read_member(value, "name", out.name));
  TRY(read_member(value, "arguments", out.arguments));
  return read_optional(value, "namespace", out.name_space);
}

Accepted<void> read_custom_call(const JsonValue& value, ResponsesItem& out) {
  out.kind = Kind::custom_call;
  TRY(read_member(value, "call_id", out.call_id));
  TRY(read_member(value, "name", out.name));
  std::string input;
  TRY(read_member(value, "input", input));
  Json arguments = Json::object();
  arguments.set("input", input);
  out.arguments = arguments.text(JsonStyle::compact);
  return {};
}

Accepted<void> read_search_call(const JsonValue& value, ResponsesItem& out) {
  out.kind = Kind::search_call;
  out.name = "tool_search";
  TRY(read_member(value, "call_id", out.call_id));
  if (const JsonValue* execution = given(value, "execution"))
    TRY(read_word(*execution, {"client", "server"}));
  Json arguments;
  TRY(read_member(value, "arguments", arguments));
  if (!arguments.is_object()) return wrong_body(*value.find("arguments"), "expected an object");
  out.arguments = arguments.text(JsonStyle::compact);
  return {};
}

// Outputs of functions may lack the id of their call.
Accepted<void> read_output(const JsonValue& value, bool custom, ResponsesItem& out) {
  out.kind = Kind::output;
  out.has_call_id = custom || given(value, "call_id") != nullptr;
  if (out.has_call_id) TRY(read_member(value, "call_id", out.call_id));
  // An output of a custom tool may be left out.
  if (custom && value.find("output") == nullptr) return {};
  return read_member(value, "output", out.content);
}

Accepted<void> read_search_output(const JsonValue& value, ResponsesItem& out) {
  out.kind = Kind::search_output;
  TRY(read_member(value, "call_id", out.call_id));
  if (const JsonValue* execution = given(value, "execution"))
    TRY(read_word(*execution, {"client", "server"}));
  return read_member(value, "tools", out.tools);
}

}  // namespace

Accepted<void> read(const JsonValue& value, ResponsesItem& out) {
  if (!value.is_object()) return wrong_body(value, "expected an object");
  const JsonValue* type_value = value.find("type");
  if (type_value == nullptr) return read_message(value, out);
  const std::string_view type = TRY(read_type(value));
  if (type == "message") return read_message(value, out);
  if (type == "reasoning") return read_reasoning(value, out);
  if (type == "function_call") return read_call(value, out);
  if (type == "custom_tool_call") return read_custom_call(value, out);
  if (type == "tool_search_call") return read_search_call(value, out);
  if (type == "function_call_output" || type == "custom_tool_call_output")
    return read_output(value, type == "custom_tool_call_output", out);
  if (type == "tool_search_output") return read_search_output(value, out);
  return {};
}

namespace {

Accepted<void> read_input(const JsonValue& value, ResponsesBody& out) {
  if (value.is_null()) return {};
  auto& input = out.input.emplace();
  if (value.is_string()) {
    input = std::string(value.string().value());
    return {};
  }
  if (!value.is_array()) return wrong_body(value, "expected a string or an array");
  return read(value, input.emplace<std::vector<ResponsesItem>>());
}

Accepted<void> read_choice(const JsonValue& value, ResponsesBody& out) {
  if (value.is_null()) return {};
  ChoiceAsked& choice = out.tool_choice.emplace();
  if (!value.is_object()) {
    choice.choice = static_cast<ToolChoice>(TRY(read_word(value, {"auto", "none", "required"})));
    out.choice_echo = tool_choice_name(choice.choice);
    return {};
  }
  const JsonValue* type = value.find("type");
  if (type == nullptr) return missing_member(value, "type");
  const size_t word =
      TRY(read_word(*type, {"web_search", "web_search_2025_08_26", "function", "custom"}));
  out.choice_echo = Json::object();
  out.choice_echo.set("type", std::string(type->string().value()));
  if (word < 2) {
    out.choice_is_search = true;
    return {};
  }
  choice.choice = ToolChoice::required;
  TRY(read_member(value, "name", choice.name.emplace()));
  out.choice_echo.set("name", *choice.name);
  return {};
}

Accepted<void> read_reasoning_options(const JsonValue& value, ResponsesBody& out) {
  if (value.is_null()) return {};
  if (!value.is_object()) return wrong_body(value, "expected an object");
  if (const JsonValue* effort = given(value, "effort")) {
    out.effort = static_cast<EffortWord>(TRY(
        read_word(*effort, {"none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"})));
    out.effort_echo = std::string(effort->string().value());
  }
  for (const char* key : {"generate_summary", "summary"}) {
    const JsonValue* summary = given(value, key);
    if (summary == nullptr) continue;
    TRY(read_word(*summary, {"auto", "concise", "detailed"}));
    out.summary_echo = std::string(summary->string().value());
  }
  return {};
}

Accepted<void> read_format(const JsonValue& value, ResponsesBody& out) {
  const JsonValue* type = value.is_object() ? value.find("type") : nullptr;
  if (type == nullptr) return wrong_body(value, "expected an object with a type");
  out.format.kind =
      static_cast<FormatKind>(TRY(read_word(*type, {"text", "json_object", "json_schema"})));
  out.format_echo = Json::object();
  out.format_echo.set("type", format_name(out.format.kind));
  if (out.format.kind != FormatKind::json_schema) return {};
  std::string name;
  std::optional<std::string> description;
  std::optional<bool> strict;
  TRY(read_member(value, "name", name));
  TRY(read_member(value, "schema", out.format.schema));
  TRY(read_optional(value, "description", description));
  TRY(read_optional(value, "strict", strict));
  out.format_strict = strict == true;
  out.format_echo.set("name", name);
  out.format_echo.set("schema", out.format.schema);
  out.format_echo.set("description", description ? Json(*description) : Json());
  out.format_echo.set("strict", strict ? Json(*strict) : Json());
  return {};
}

Accepted<void> read_text_options(const JsonValue& value, ResponsesBody& out) {
  if (value.is_null()) return {};
  if (!value.is_object()) return wrong_body(value, "expected an object");
  if (const JsonValue* format = value.find("format")) TRY(read_format(*format, out));
  const JsonValue* verbosity = given(value, "verbosity");
  if (verbosity == nullptr) return {};
  TRY(read_word(*verbosity, {"low", "medium", "high"}));
  out.verbosity_echo = std::string(verbosity->string().value());
  return {};
}

constexpr Field<ResponsesBody> kBody[] = {
    field<&ResponsesBody::model>("model", kRequired),
    {"input", Presence::optional, read_input},
    field<&ResponsesBody::instructions>("instructions"),
    field<&ResponsesBody::user>("user"),
    field<&ResponsesBody::tools>("tools"),
    {"tool_choice", Presence::optional, read_choice},
    {"reasoning", Presence::optional, read_reasoning_options},
    {"text", Presence::optional, read_text_options},
    field<&ResponsesBody::temperature>("temperature"),
    field<&ResponsesBody::top_p>("top_p"),
    field<&ResponsesBody::top_logprobs>("top_logprobs"),
    field<&ResponsesBody::max_output_tokens>("max_output_tokens"),
    field<&ResponsesBody::stream>("stream"),
};

}  // namespace

Accepted<ResponsesBody> read_responses_body(std::string_view text) {
  const JsonDocument document = TRY(read_body(text));
  ResponsesBody body;
  TRY(read_object<ResponsesBody>(document.root(), kBody, body));
  return body;
}

}  // namespace deepinfer::recipe
