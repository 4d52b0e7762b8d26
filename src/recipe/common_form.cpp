#include "recipe/common_form.h"

#include <cmath>

namespace deepinfer::recipe {
namespace {

constexpr std::string_view kImageMark = DeepSeekTokens().image;

Json text_or_null(const std::optional<std::string>& text) { return text ? Json(*text) : Json(); }

Json tool_json(const Tool& tool) {
  Json out = Json::object();
  out.set("name", tool.name);
  out.set("description", text_or_null(tool.description));
  out.set("parameters", tool.parameters);
  out.set("strict", tool.strict ? Json(*tool.strict) : Json());
  out.set("defer_loading", tool.defer_loading);
  return out;
}

Json tools_json(const std::vector<Tool>& tools) {
  Json out = Json::array();
  for (const Tool& tool : tools) out.push_back(tool_json(tool));
  return out;
}

Json message_json(const Message& message) {
  Json out = Json::object();
  out.set("role", role_name(message.role));
  out.set("content", message.content.flattened(kImageMark));
  if (message.reasoning) out.set("reasoning_content", *message.reasoning);
  if (message.tool_calls) {
    Json calls = Json::array();
    for (const ToolCall& call : *message.tool_calls) {
      Json one = Json::object();
      one.set("id", call.id);
      one.set("name", call.name);
      one.set("arguments", call.arguments);
      calls.push_back(std::move(one));
    }
    out.set("tool_calls", std::move(calls));
  }
  if (message.tool_call_id) out.set("tool_call_id", *message.tool_call_id);
  if (message.prefix) out.set("prefix", true);
  if (!message.content.images.empty()) {
    Json images = Json::array();
    for (const Image& image : message.content.images) images.push_back(image_json(image));
    out.set("image_sources", std::move(images));
  }
  if (message.tools) out.set("tools", tools_json(*message.tools));
  return out;
}

// Six decimals: the values are single precision.
Json rounded(float value) { return std::round(static_cast<double>(value) * 1e6) / 1e6; }

Json inference_json(const InferenceOptions& options) {
  Json out = Json::object();
  out.set("max_tokens", options.max_tokens ? Json(*options.max_tokens) : Json());
  out.set("temperature", rounded(options.temperature));
  out.set("top_p", rounded(options.top_p));
  out.set("logprobs", options.logprobs);
  out.set("top_logprobs",
          options.top_logprobs ? Json(static_cast<int64_t>(*options.top_logprobs)) : Json());
  out.set("seed", options.seed ? Json(*options.seed) : Json());
  Json constraint;
  if (options.constraint) {
    constraint = Json::object();
    constraint.set("kind", constraint_name(options.constraint->kind));
    constraint.set("schema", options.constraint->schema);
  }
  out.set("output_constraint", std::move(constraint));
  return out;
}

Json parsing_json(const ParsingOptions& options) {
  Json out = Json::object();
  out.set("parse_tool_calls", options.parse_tool_calls);
  out.set("starts_in_tool_calls", options.starts_in_tool_calls);
  out.set("parse_json_output", options.parse_json_output);
  const std::string_view stage = stage_name(options.stage);
  out.set("thinking_initial_stage", stage.empty() ? Json() : Json(stage));
  Json stops = Json::array();
  for (const std::string& stop : options.stop_sequences) stops.push_back(stop);
  out.set("stop_sequences", std::move(stops));
  return out;
}

Result<std::optional<std::string>> optional_text(const JsonValue& value, std::string_view key) {
  const JsonValue* found = value.find(key);
  if (found == nullptr || found->is_null()) return std::optional<std::string>();
  return std::optional<std::string>(TRY(found->as<std::string>()));
}

Result<std::vector<Tool>> tools_from_json(const JsonValue& value) {
  std::vector<Tool> tools;
  for (const JsonValue& one : TRY(value.array())) {
    Tool& tool = tools.emplace_back();
    tool.name = TRY(one.get<std::string>("name"));
    tool.description = TRY(optional_text(one, "description"));
    if (const JsonValue* parameters = one.find("parameters"))
      tool.parameters = TRY(Json::from(*parameters));
    const JsonValue* strict = one.find("strict");
    if (strict != nullptr && !strict->is_null()) tool.strict = TRY(strict->boolean());
    tool.defer_loading = TRY(one.get_or("defer_loading", false));
  }
  return tools;
}

Result<std::vector<Image>> images_from_json(const JsonValue& value) {
  std::vector<Image> images;
  for (const JsonValue& one : TRY(value.array())) {
    Image& image = images.emplace_back();
    image.kind = TRY(one.get<std::string>("kind")) == "url" ? ImageKind::url : ImageKind::data_url;
    image.source = TRY(one.get<std::string>(image.kind == ImageKind::url ? "url" : "data_url"));
    image.path = TRY(one.get_or<std::string>("path", ""));
    const std::string detail = TRY(one.get_or<std::string>("detail", "high"));
    for (ImageDetail known : {ImageDetail::low, ImageDetail::original, ImageDetail::automatic}) {
      if (detail == image_detail_name(known)) image.detail = known;
    }
  }
  return images;
}

Result<std::vector<ToolCall>> calls_from_json(const JsonValue& value) {
  std::vector<ToolCall> calls;
  for (const JsonValue& one : TRY(value.array())) {
    calls.push_back({TRY(one.get<std::string>("id")), TRY(one.get<std::string>("name")),
                     TRY(one.get<std::string>("arguments"))});
  }
  return calls;
}

Result<Message> message_from_json(const JsonValue& value) {
  Message message;
  const std::string role = TRY(value.get<std::string>("role"));
  const std::optional<Role> known = role_from_name(role);
  if (!known) return value.error("\"" + role + "\" is not a role");
  message.role = *known;
  std::vector<Image> images;
  if (const JsonValue* sources = value.find("image_sources"); sources && !sources->is_null())
    images = TRY(images_from_json(*sources));
  const std::string content = TRY(value.get<std::string>("content"));
  message.content = Content::from_flattened(content, std::move(images), kImageMark);
  message.reasoning = TRY(optional_text(value, "reasoning_content"));
  if (const JsonValue* calls = value.find("tool_calls"); calls && !calls->is_null())
    message.tool_calls = TRY(calls_from_json(*calls));
  message.tool_call_id = TRY(optional_text(value, "tool_call_id"));
  message.prefix = TRY(value.get_or("prefix", false));
  if (const JsonValue* tools = value.find("tools"); tools && !tools->is_null())
    message.tools = TRY(tools_from_json(*tools));
  return message;
}

Result<ResponseFormat> format_from_json(const JsonValue& value) {
  ResponseFormat format;
  const std::string name = TRY(value.get_or<std::string>("response_format", "text"));
  for (FormatKind kind :
       {FormatKind::text, FormatKind::json_object, FormatKind::json_schema, FormatKind::regex}) {
    if (name == format_name(kind)) format.kind = kind;
  }
  if (format.kind == FormatKind::json_schema) {
    const JsonValue* schema = TRY(value.member("response_schema"));
    format.schema = TRY(Json::from(*schema));
  }
  if (format.kind == FormatKind::regex)
    format.regex = TRY(value.get<std::string>("response_regex"));
  return format;
}

}  // namespace

Json image_json(const Image& image) {
  Json out = Json::object();
  out.set("kind", image_kind_name(image.kind));
  out.set("detail", image_detail_name(image.detail));
  out.set("path", image.path);
  if (image.kind == ImageKind::data_url) out.set("data_url", image.source);
  if (image.kind == ImageKind::url) out.set("url", image.source);
  return out;
}

Json conversation_json(const Conversation& conversation) {
  Json messages = Json::array();
  for (const Message& message : conversation.messages) messages.push_back(message_json(message));
  Json out = Json::object();
  out.set("messages", std::move(messages));
  out.set("thinking_mode", conversation.thinking);
  out.set("tools", tools_json(conversation.tools));
  out.set("tool_choice", tool_choice_name(conversation.tool_choice));
  out.set("reasoning_effort",
          conversation.effort ? Json(effort_name(*conversation.effort)) : Json());
  const ResponseFormat& format = conversation.format;
  out.set("response_format", format_name(format.kind));
  out.set("response_schema", format.kind == FormatKind::json_schema ? format.schema : Json());
  out.set("response_regex", format.kind == FormatKind::regex ? Json(format.regex) : Json());
  return out;
}

Json request_json(const Request& request) {
  Json out = Json::object();
  out.set("conversation", conversation_json(request.conversation));
  out.set("model_version",
          request.version == DeepSeekVersion::v4 ? "DeepseekV4Pro" : "DeepseekV41Flash");
  out.set("stream", request.stream);
  out.set("inference_options", inference_json(request.inference));
  out.set("parsing_options", parsing_json(request.parsing));
  return out;
}

Result<Conversation> conversation_from_json(const JsonValue& value) {
  Conversation conversation;
  const JsonValue* messages = TRY(value.member("messages"));
  for (const JsonValue& one : TRY(messages->array()))
    conversation.messages.push_back(TRY(message_from_json(one)));
  conversation.thinking = TRY(value.get_or("thinking_mode", true));
  if (const JsonValue* tools = value.find("tools"); tools && !tools->is_null())
    conversation.tools = TRY(tools_from_json(*tools));
  const std::string choice = TRY(value.get_or<std::string>("tool_choice", "auto"));
  for (ToolChoice known : {ToolChoice::none, ToolChoice::required}) {
    if (choice == tool_choice_name(known)) conversation.tool_choice = known;
  }
  const std::string effort = TRY(value.get_or<std::string>("reasoning_effort", ""));
  for (Effort known : {Effort::low, Effort::high, Effort::xhigh, Effort::max}) {
    if (effort == effort_name(known)) conversation.effort = known;
  }
  conversation.format = TRY(format_from_json(value));
  return conversation;
}

Result<ParsingOptions> parsing_from_json(const JsonValue& value) {
  ParsingOptions options;
  options.parse_tool_calls = TRY(value.get_or("parse_tool_calls", true));
  options.starts_in_tool_calls = TRY(value.get_or("starts_in_tool_calls", false));
  options.parse_json_output = TRY(value.get_or("parse_json_output", false));
  const std::string stage = TRY(value.get_or<std::string>("thinking_initial_stage", ""));
  options.stage = stage_from_name(stage).value_or(ThinkingStage::none);
  if (const JsonValue* stops = value.find("stop_sequences"); stops && !stops->is_null()) {
    for (const JsonValue& stop : TRY(stops->array()))
      options.stop_sequences.push_back(TRY(stop.as<std::string>()));
  }
  return options;
}

}  // namespace deepinfer::recipe
