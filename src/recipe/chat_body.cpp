// Reads the body of a Chat Completions request.

#include "recipe/body_reader.h"
#include "recipe/chat_request.h"

namespace deepinfer::recipe {
namespace {

Accepted<void> read_image_url(const JsonValue& value, ChatPart& out) {
  if (!value.is_object()) return wrong_body(value, "expected an object");
  const JsonValue* url = value.find("url");
  if (url == nullptr) return missing_member(value, "url");
  TRY(read(*url, out.text));
  const JsonValue* detail = value.find("detail");
  if (detail == nullptr || detail->is_null()) return {};
  out.detail =
      static_cast<ImageDetail>(TRY(read_word(*detail, {"low", "high", "original", "auto"})));
  return {};
}

constexpr Field<ChatPart> kFile[] = {
    field<&ChatPart::file_data>("file_data"),
    field<&ChatPart::file_id>("file_id"),
    field<&ChatPart::filename>("filename"),
};

}  // namespace

Accepted<void> read(const JsonValue& value, ChatPart& out) {
  const std::string_view type = TRY(read_type(value));
  if (type == "text") {
    const JsonValue* text = value.find("text");
    return text != nullptr ? read(*text, out.text) : missing_member(value, "text");
  }
  if (type == "image_url") {
    out.kind = ChatPart::Kind::image_url;
    const JsonValue* url = value.find("image_url");
    return url != nullptr ? read_image_url(*url, out) : missing_member(value, "image_url");
  }
  if (type != "file")
    return wrong_body(value, "the type " + std::string(type) + " is none of text, image_url, file");
  out.kind = ChatPart::Kind::file;
  return read_object<ChatPart>(value, kFile, out);
}

Accepted<void> read(const JsonValue& value, ChatContent& out) {
  if (value.is_string()) {
    out = std::string(value.string().value());
    return {};
  }
  return read(value, out.emplace<std::vector<ChatPart>>());
}

Accepted<void> read(const JsonValue& value, ToolCall& out) {
  struct Function {
    std::string name, arguments;
  };
  if (!value.is_object()) return wrong_body(value, "expected an object");
  const JsonValue* id = value.find("id");
  if (id == nullptr) return missing_member(value, "id");
  TRY(read(*id, out.id));
  const JsonValue* type = value.find("type");
  if (type == nullptr) return missing_member(value, "type");
  TRY(read_word(*type, {"function"}));
  const JsonValue* function = value.find("function");
  if (function == nullptr) return missing_member(value, "function");
  static constexpr Field<ToolCall> kFunction[] = {
      field<&ToolCall::name>("name", kRequired),
      field<&ToolCall::arguments>("arguments", kRequired),
  };
  return read_object<ToolCall>(*function, kFunction, out);
}

namespace {

constexpr Field<ChatMessage> kAssistant[] = {
    field<&ChatMessage::content>("content"),
    field<&ChatMessage::reasoning_content>("reasoning_content"),
    field<&ChatMessage::tool_calls>("tool_calls"),
    field<&ChatMessage::prefix>("prefix"),
    {"name", Presence::optional, read_unused_text<ChatMessage>},
};
constexpr Field<ChatMessage> kTool[] = {
    field<&ChatMessage::content>("content", kRequired),
    field<&ChatMessage::tool_call_id>("tool_call_id", kRequired),
};
constexpr Field<ChatMessage> kOther[] = {
    field<&ChatMessage::content>("content", kRequired),
    {"name", Presence::optional, read_unused_text<ChatMessage>},
};

}  // namespace

Accepted<void> read(const JsonValue& value, ChatMessage& out) {
  if (!value.is_object()) return wrong_body(value, "expected an object");
  const JsonValue* role = value.find("role");
  if (role == nullptr) return missing_member(value, "role");
  out.role = static_cast<Role>(
      TRY(read_word(*role, {"system", "user", "assistant", "tool", "latest_reminder"})));
  if (out.role == Role::assistant) return read_object<ChatMessage>(value, kAssistant, out);
  const std::span<const Field<ChatMessage>> fields =
      out.role == Role::tool ? std::span<const Field<ChatMessage>>(kTool) : kOther;
  TRY(read_object<ChatMessage>(value, fields, out));
  const JsonValue& content = *value.find("content");
  if (content.is_null()) return wrong_body(content, "must not be null");
  if (out.role == Role::tool && !out.tool_call_id)
    return wrong_body(*value.find("tool_call_id"), "must not be null");
  if (out.role == Role::latest_reminder && !content.is_string())
    return wrong_body(content, "expected a string");
  return {};
}

namespace {

constexpr Field<Tool> kFunctionTool[] = {
    field<&Tool::name>("name", kRequired),
    field<&Tool::description>("description"),
    field<&Tool::parameters>("parameters"),
    field<&Tool::strict>("strict"),
};

Accepted<void> read_tool(const JsonValue& value, Tool& out) {
  if (!value.is_object()) return wrong_body(value, "expected an object");
  const JsonValue* type = value.find("type");
  if (type == nullptr) return missing_member(value, "type");
  TRY(read_word(*type, {"function"}));
  const JsonValue* function = value.find("function");
  if (function == nullptr) return missing_member(value, "function");
  return read_object<Tool>(*function, kFunctionTool, out);
}

Accepted<void> read_tools(const JsonValue& value, ChatBody& out) {
  if (value.is_null()) return {};
  if (!value.is_array()) return wrong_body(value, "expected an array");
  std::vector<Tool>& tools = out.tools.emplace();
  for (const JsonValue& one : value.array().value()) TRY(read_tool(one, tools.emplace_back()));
  return {};
}

Accepted<void> read_choice(const JsonValue& value, ChatBody& out) {
  if (value.is_null()) return {};
  ChoiceAsked& choice = out.tool_choice.emplace();
  if (!value.is_object()) {
    choice.choice = static_cast<ToolChoice>(TRY(read_word(value, {"auto", "none", "required"})));
    return {};
  }
  const JsonValue* type = value.find("type");
  if (type == nullptr) return missing_member(value, "type");
  TRY(read_word(*type, {"function"}));
  const JsonValue* function = value.find("function");
  if (function == nullptr) return missing_member(value, "function");
  if (!function->is_object()) return wrong_body(*function, "expected an object");
  const JsonValue* name = function->find("name");
  if (name == nullptr) return missing_member(*function, "name");
  choice.choice = ToolChoice::required;
  return read(*name, choice.name.emplace());
}

Accepted<void> read_thinking(const JsonValue& value, ChatBody& out) {
  if (value.is_null()) return {};
  if (!value.is_object()) return wrong_body(value, "expected an object");
  const JsonValue* type = value.find("type");
  if (type == nullptr) return missing_member(value, "type");
  out.thinking = TRY(read_word(*type, {"disabled", "enabled", "adaptive"})) != 0;
  return {};
}

Accepted<void> read_effort(const JsonValue& value, ChatBody& out) {
  if (value.is_null()) return {};
  out.reasoning_effort = static_cast<EffortWord>(
      TRY(read_word(value, {"none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"})));
  return {};
}

Accepted<void> read_stop(const JsonValue& value, ChatBody& out) {
  if (!value.is_string()) return read(value, out.stop);
  out.stop_is_text = true;
  return read(value, out.stop.emplace().emplace_back());
}

Accepted<void> read_stream_options(const JsonValue& value, ChatBody& out) {
  if (value.is_null()) return {};
  if (!value.is_object()) return wrong_body(value, "expected an object");
  out.stream_options = true;
  const JsonValue* usage = value.find("include_usage");
  return usage == nullptr ? Accepted<void>() : read(*usage, out.include_usage);
}

struct SchemaFormat {
  Json schema;
  std::optional<bool> strict;
};
constexpr Field<SchemaFormat> kSchemaFormat[] = {
    field<&SchemaFormat::schema>("schema", kRequired),
    field<&SchemaFormat::strict>("strict"),
    {"name", Presence::optional, read_unused_text<SchemaFormat>},
    {"description", Presence::optional, read_unused_text<SchemaFormat>},
};

Accepted<void> read_format(const JsonValue& value, ChatBody& out) {
  if (value.is_null()) return {};
  if (!value.is_object()) return wrong_body(value, "expected an object");
  const JsonValue* type = value.find("type");
  if (type == nullptr) return missing_member(value, "type");
  ChatFormat& format = out.response_format.emplace();
  format.kind = static_cast<FormatKind>(
      TRY(read_word(*type, {"text", "json_object", "json_schema", "regex"})));
  if (format.kind == FormatKind::json_schema) {
    const JsonValue* schema = value.find("json_schema");
    if (schema == nullptr) return missing_member(value, "json_schema");
    SchemaFormat read_schema;
    TRY(read_object<SchemaFormat>(*schema, kSchemaFormat, read_schema));
    format.schema = std::move(read_schema.schema);
    format.strict = read_schema.strict == true;
  } else if (format.kind == FormatKind::regex) {
    const JsonValue* regex = value.find("regex");
    return regex != nullptr ? read(*regex, format.regex) : missing_member(value, "regex");
  }
  return {};
}

constexpr Field<ChatBody> kBody[] = {
    field<&ChatBody::model>("model", kRequired),
    field<&ChatBody::messages>("messages", kRequired),
    {"tools", Presence::optional, read_tools},
    {"tool_choice", Presence::optional, read_choice},
    {"thinking", Presence::optional, read_thinking},
    {"reasoning_effort", Presence::optional, read_effort},
    field<&ChatBody::temperature>("temperature"),
    field<&ChatBody::top_p>("top_p"),
    field<&ChatBody::frequency_penalty>("frequency_penalty"),
    field<&ChatBody::presence_penalty>("presence_penalty"),
    field<&ChatBody::max_tokens>("max_tokens"),
    field<&ChatBody::seed>("seed"),
    field<&ChatBody::n>("n"),
    field<&ChatBody::top_logprobs>("top_logprobs"),
    {"stop", Presence::optional, read_stop},
    field<&ChatBody::stream>("stream"),
    field<&ChatBody::logprobs>("logprobs"),
    {"stream_options", Presence::optional, read_stream_options},
    {"response_format", Presence::optional, read_format},
};

}  // namespace

Accepted<ChatBody> read_chat_body(std::string_view text) {
  const JsonDocument document = TRY(read_body(text));
  ChatBody body;
  TRY(read_object<ChatBody>(document.root(), kBody, body));
  return body;
}

}  // namespace deepinfer::recipe
