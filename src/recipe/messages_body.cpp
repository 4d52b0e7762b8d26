// Reads the body of a Messages request.

#include <algorithm>

#include "recipe/body_reader.h"
#include "recipe/messages_request.h"

namespace deepinfer::recipe {
namespace {

using Kind = MessagesBlock::Kind;

// The member, read; it must be there.
template <class T>
Accepted<void> read_member(const JsonValue& value, std::string_view key, T& out) {
  const JsonValue* found = value.find(key);
  return found != nullptr ? read(*found, out) : missing_member(value, key);
}

Accepted<void> read_image_source(const JsonValue& value, MessagesBlock& out) {
  const JsonValue* source = value.find("source");
  if (source == nullptr) return missing_member(value, "source");
  const std::string_view type = TRY(read_type(*source));
  if (type == "url") {
    out.source = MessagesBlock::Source::url;
    return read_member(*source, "url", out.data);
  }
  if (type == "file") {
    out.source = MessagesBlock::Source::file;
    return read_member(*source, "file_id", out.data);
  }
  if (type != "base64")
    return wrong_body(*source, "the type " + std::string(type) + " is none of base64, url, file");
  const JsonValue* media = source->find("media_type");
  if (media == nullptr) return missing_member(*source, "media_type");
  static constexpr const char* kNames[] = {"image/jpeg", "image/jpeg", "image/png", "image/gif",
                                           "image/webp"};
  out.media_type = kNames[TRY(
      read_word(*media, {"image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp"}))];
  return read_member(*source, "data", out.data);
}

Accepted<void> read_document(const JsonValue& value, MessagesBlock& out) {
  const JsonValue* source = value.find("source");
  if (source == nullptr) return missing_member(value, "source");
  if (!source->is_object()) return wrong_body(*source, "expected an object");
  const JsonValue* media = source->find("media_type");
  if (media == nullptr || media->is_null()) return {};
  return read(*media, out.media_type);
}

Accepted<void> read_addition(const JsonValue& value, MessagesBlock& out) {
  const JsonValue* tool = value.find("tool");
  if (tool == nullptr) return missing_member(value, "tool");
  const std::string_view type = TRY(read_type(*tool));
  if (type != "tool_reference") return wrong_body(*tool, "expected a tool_reference");
  return read_member(*tool, "name", out.name);
}

Accepted<void> read_blocks(const JsonValue& value, std::initializer_list<Kind> kinds,
                           std::vector<MessagesBlock>& out);

Accepted<void> read_result(const JsonValue& value, MessagesBlock& out) {
  TRY(read_member(value, "tool_use_id", out.id));
  if (const JsonValue* error = value.find("is_error")) {
    std::optional<bool> unused;
    TRY(read(*error, unused));
  }
  const JsonValue* content = value.find("content");
  if (content == nullptr || content->is_null()) return {};
  if (content->is_string()) return read(*content, out.content.emplace_back().text);
  return read_blocks(*content, {Kind::text, Kind::image, Kind::document, Kind::tool_reference},
                     out.content);
}

struct KindName {
  std::string_view name;
  Kind kind;
};
constexpr KindName kKindNames[] = {
    {"text", Kind::text},
    {"image", Kind::image},
    {"document", Kind::document},
    {"thinking", Kind::thinking},
    {"tool_use", Kind::tool_use},
    {"tool_result", Kind::tool_result},
    {"tool_reference", Kind::tool_reference},
    {"tool_addition", Kind::tool_addition},
    {"server_tool_use", Kind::server_tool},
    {"web_search_tool_result", Kind::server_tool},
};

Accepted<void> read_block(const JsonValue& value, std::initializer_list<Kind> kinds,
                          MessagesBlock& out) {
  const std::string_view type = TRY(read_type(value));
  bool known = false;
  for (const KindName& one : kKindNames) {
    if (one.name != type || std::find(kinds.begin(), kinds.end(), one.kind) == kinds.end())
      continue;
    out.kind = one.kind;
    known = true;
  }
  if (!known)
    return wrong_body(value, "blocks of the type " + std::string(type) + " are not known here");
  switch (out.kind) {
    case Kind::text:
      return read_member(value, "text", out.text);
    case Kind::image:
      return read_image_source(value, out);
    case Kind::document:
      return read_document(value, out);
    case Kind::thinking:
      if (const JsonValue* signature = value.find("signature"))
        TRY(read_unused_text(*signature, out));
      return read_member(value, "thinking", out.text);
    case Kind::tool_use:
      TRY(read_member(value, "id", out.id));
      TRY(read_member(value, "name", out.name));
      return read_member(value, "input", out.input);
    case Kind::tool_result:
      return read_result(value, out);
    case Kind::tool_reference:
      return read_member(value, "tool_name", out.name);
    case Kind::tool_addition:
      return read_addition(value, out);
    case Kind::server_tool:
      if (type == "web_search_tool_result") {
        TRY(read_member(value, "tool_use_id", out.id));
        return value.find("content") != nullptr ? Accepted<void>()
                                                : missing_member(value, "content");
      }
      TRY(read_member(value, "id", out.id));
      TRY(read_member(value, "name", out.name));
      return read_member(value, "input", out.input);
  }
  return {};
}

Accepted<void> read_blocks(const JsonValue& value, std::initializer_list<Kind> kinds,
                           std::vector<MessagesBlock>& out) {
  if (!value.is_array()) return wrong_body(value, "expected a string or an array");
  for (const JsonValue& one : value.array().value())
    TRY(read_block(one, kinds, out.emplace_back()));
  return {};
}

Accepted<void> read_content(const JsonValue& value, std::initializer_list<Kind> kinds,
                            MessagesContent& out) {
  if (value.is_string()) {
    out = std::string(value.string().value());
    return {};
  }
  return read_blocks(value, kinds, out.emplace<std::vector<MessagesBlock>>());
}

}  // namespace

Accepted<void> read(const JsonValue& value, MessagesMessage& out) {
  if (!value.is_object()) return wrong_body(value, "expected an object");
  const JsonValue* role = value.find("role");
  if (role == nullptr) return missing_member(value, "role");
  out.role = static_cast<Role>(TRY(read_word(*role, {"system", "user", "assistant"})));
  const JsonValue* content = value.find("content");
  if (content == nullptr) return missing_member(value, "content");
  return read_content(*content,
                      {Kind::text, Kind::image, Kind::document, Kind::thinking, Kind::tool_use,
                       Kind::tool_result, Kind::tool_addition, Kind::server_tool},
                      out.content);
}

namespace {

constexpr Field<MessagesTool> kTool[] = {
    field<&MessagesTool::name>("name", kRequired),
    field<&MessagesTool::description>("description"),
    field<&MessagesTool::input_schema>("input_schema"),
    field<&MessagesTool::defer_loading>("defer_loading"),
};

}  // namespace

Accepted<void> read(const JsonValue& value, MessagesTool& out) {
  const JsonValue* type = value.find("type");
  if (type != nullptr) {
    const JsonValue* name = value.find("name");
    if (name != nullptr && !name->is_null()) TRY(read(*name, out.name));
    return read(*type, out.type.emplace());
  }
  return read_object<MessagesTool>(value, kTool, out);
}

namespace {

Accepted<void> read_system(const JsonValue& value, MessagesBody& out) {
  if (value.is_null()) return {};
  return read_content(value, {Kind::text}, out.system.emplace());
}

Accepted<void> read_thinking(const JsonValue& value, MessagesBody& out) {
  if (value.is_null()) return {};
  if (!value.is_object()) return wrong_body(value, "expected an object");
  const JsonValue* type = value.find("type");
  if (type == nullptr) return missing_member(value, "type");
  out.thinking = TRY(read_word(*type, {"disabled", "enabled", "adaptive"})) != 0;
  return {};
}

Accepted<void> read_output_config(const JsonValue& value, MessagesBody& out) {
  if (value.is_null()) return {};
  if (!value.is_object()) return wrong_body(value, "expected an object");
  const JsonValue* effort = value.find("effort");
  if (effort == nullptr || effort->is_null()) return {};
  out.effort = static_cast<EffortWord>(TRY(
      read_word(*effort, {"none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"})));
  return {};
}

Accepted<void> read_choice(const JsonValue& value, MessagesBody& out) {
  if (value.is_null()) return {};
  if (!value.is_object()) return wrong_body(value, "expected an object");
  const JsonValue* type = value.find("type");
  if (type == nullptr) return missing_member(value, "type");
  const size_t word = TRY(read_word(*type, {"auto", "any", "none", "tool"}));
  ChoiceAsked& choice = out.tool_choice.emplace();
  if (word == 2) choice.choice = ToolChoice::none;
  if (word != 3) return {};
  choice.choice = ToolChoice::required;
  return read_member(value, "name", choice.name.emplace());
}

Accepted<void> read_metadata(const JsonValue& value, MessagesBody& out) {
  if (value.is_null()) return {};
  if (!value.is_object()) return wrong_body(value, "expected an object");
  const JsonValue* user = value.find("user_id");
  return user != nullptr ? read(*user, out.user_id) : Accepted<void>();
}

constexpr Field<MessagesBody> kBody[] = {
    field<&MessagesBody::model>("model", kRequired),
    field<&MessagesBody::messages>("messages", kRequired),
    {"system", Presence::optional, read_system},
    {"thinking", Presence::optional, read_thinking},
    {"output_config", Presence::optional, read_output_config},
    field<&MessagesBody::tools>("tools"),
    {"tool_choice", Presence::optional, read_choice},
    field<&MessagesBody::stop_sequences>("stop_sequences"),
    field<&MessagesBody::temperature>("temperature"),
    field<&MessagesBody::top_p>("top_p"),
    field<&MessagesBody::max_tokens>("max_tokens"),
    field<&MessagesBody::stream>("stream"),
    {"metadata", Presence::optional, read_metadata},
};

}  // namespace

Accepted<MessagesBody> read_messages_body(std::string_view text) {
  const JsonDocument document = TRY(read_body(text));
  MessagesBody body;
  TRY(read_object<MessagesBody>(document.root(), kBody, body));
  return body;
}

}  // namespace deepinfer::recipe
