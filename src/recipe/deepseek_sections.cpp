#include "recipe/deepseek_sections.h"

#include <algorithm>

namespace deepinfer::recipe {
namespace {

constexpr std::string_view kToolsHead =
    "\n\n## Tools\n\nYou have access to a set of tools to help answer the user's question. You can "
    "invoke tools by writing a \"<{D}{B}>\" block like the following:\n\n"
    "<{D}{B}>\n"
    "<{D}{I} name=\"$TOOL_NAME\">\n"
    "<{D}{P} name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</{D}{P}>\n"
    "...\n"
    "</{D}{I}>\n"
    "<{D}{I} name=\"$TOOL_NAME2\">\n"
    "...\n"
    "</{D}{I}>\n"
    "</{D}{B}>\n\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other types "
    "(numbers, booleans, arrays, objects), pass the value in JSON format and set "
    "`string=\"false\"`.\n\n"
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning "
    "inside <think>...</think> BEFORE any tool calls or final response.\n\n"
    "Otherwise, output directly after </think> with tool calls or final response.\n\n"
    "### Available Tool Schemas\n\n";
constexpr std::string_view kToolsTail =
    "You MUST strictly follow the above defined tool name and parameter schemas to invoke tool "
    "calls.\n";
constexpr std::string_view kFormatHead =
    "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";
constexpr std::string_view kJsonObjectV4 =
    "\n\nYou are a helpful assistant designed to output JSON.\n## Response Format:\n\n"
    "Reply with JSON object ONLY.";

// The members of the arguments, or all of the text as one string when it is no JSON object.
Json parameters_of(const std::string& arguments) {
  Result<Json> parsed = Json::parse(arguments, "arguments");
  if (parsed.ok() && parsed.value().is_object()) return std::move(parsed).value();
  Json whole = Json::object();
  whole.set("arguments", arguments);
  return whole;
}

}  // namespace

DeepSeekWriter::DeepSeekWriter(const Conversation& conversation_in, DeepSeekVersion version,
                               const DeepSeekTokens& tokens_in)
    : conversation(conversation_in),
      tokens(tokens_in),
      v41_(version == DeepSeekVersion::v41),
      style_(v41_ ? JsonStyle::spaced_python : JsonStyle::spaced_rust) {
  size_t bytes = 4096;
  for (const Message& message : conversation.messages)
    bytes += message.content.text.size() + (message.reasoning ? message.reasoning->size() : 0) + 64;
  prompt.reserve(bytes);
}

void DeepSeekWriter::pattern(std::string_view text) {
  while (!text.empty()) {
    const size_t at = text.find_first_of("{<");
    prompt.plain(text.substr(0, at));
    if (at == std::string_view::npos) return;
    text.remove_prefix(at);
    if (text.starts_with("<think>")) {
      prompt.control(tokens.think);
      text.remove_prefix(7);
    } else if (text.starts_with("</think>")) {
      prompt.control(tokens.end_think);
      text.remove_prefix(8);
    } else if (text[0] == '<') {
      prompt.plain("<");
      text.remove_prefix(1);
    } else {
      if (text[1] == 'D') prompt.control(tokens.dsml);
      // V4.1 puts a blank between the marker and the name.
      if (text[1] == 'B') prompt.plain(v41_ ? " calls" : "tool_calls");
      if (text[1] == 'I') prompt.plain(v41_ ? " invoke" : "invoke");
      if (text[1] == 'P') prompt.plain(v41_ ? " parameter" : "parameter");
      text.remove_prefix(3);
    }
  }
}

std::string DeepSeekWriter::schema_lines(std::span<const Tool> tools, bool shown_only) const {
  std::string lines;
  bool first = true;
  for (const Tool& tool : tools) {
    if (shown_only && tool.defer_loading) continue;
    if (!first) lines += '\n';
    first = false;
    lines += "{\"name\": ";
    Json(tool.name).append_to(lines, style_);
    lines += ", \"description\": ";
    Json(tool.description.value_or("")).append_to(lines, style_);
    lines += ", \"parameters\": ";
    tool.parameters.append_to(lines, style_);
    lines += '}';
  }
  return lines;
}

void DeepSeekWriter::tools_section() {
  pattern(kToolsHead);
  const std::string lines = schema_lines(conversation.tools, true);
  prompt.plain(lines);
  // V4 ends each line, V4.1 joins them: they differ when there is none.
  prompt.plain(v41_ || !lines.empty() ? "\n\n" : "\n");
  prompt.plain(kToolsTail);
}

std::string DeepSeekWriter::response_format() const {
  const ResponseFormat& format = conversation.format;
  if (format.kind == FormatKind::json_object) {
    if (!v41_) return std::string(kJsonObjectV4);
    return std::string(kFormatHead) + "{\"type\": \"json_object\"}";
  }
  if (format.kind != FormatKind::json_schema) return {};
  std::string text(kFormatHead);
  format.schema.append_to(text, style_);
  return text;
}

void DeepSeekWriter::parameter(std::string_view key, const Json& value) {
  pattern("<{D}{P} name=\"");
  prompt.plain(key);
  if (value.is_string()) {
    prompt.plain("\" string=\"true\">");
    prompt.plain(value.string());
  } else {
    prompt.plain("\" string=\"false\">");
    prompt.plain(value.text(style_));
  }
  pattern("</{D}{P}>\n");
}

void DeepSeekWriter::call_block(const std::vector<const ToolCall*>& calls) {
  pattern("\n\n<{D}{B}>\n");
  for (const ToolCall* call : calls) {
    pattern("<{D}{I} name=\"");
    prompt.plain(call->name);
    prompt.plain("\">\n");
    const Json parameters = parameters_of(call->arguments);
    for (const Json::Member& member : parameters.members()) parameter(member.key, member.value);
    if (v41_ && parameters.members().empty()) prompt.plain("\n");
    pattern("</{D}{I}>\n");
  }
  pattern("</{D}{B}>");
}

void DeepSeekWriter::turn_part(const Message& message) {
  if (message.role == Role::tool) prompt.plain("<tool_result>");
  prompt.content(message.content, tokens.image);
  if (message.role == Role::tool) prompt.plain("</tool_result>");
}

// A prefix without content and calls leaves its thinking open: the model goes on with it.
DeepSeekWriter::Thinking DeepSeekWriter::thinking_of(const Message& message, bool calls,
                                                     bool first) const {
  const bool open = message.prefix && conversation.thinking && message.content.empty() && !calls;
  const bool keeps = conversation.shows_tools() || message.prefix;
  if (!v41_) return {.open = keeps && message.reasoning.has_value(), .close = !open};
  if (!conversation.thinking || !keeps || first) return {.open = false, .close = true};
  return {.open = true, .close = !open};
}

void DeepSeekWriter::assistant_turn(const Message& message, bool last, bool first) {
  prompt.control(tokens.assistant);
  // V4 writes a block even for an empty list.
  const bool calls = message.tool_calls && !(v41_ && message.tool_calls->empty());
  const Thinking thinking = thinking_of(message, calls, first);
  if (thinking.open) {
    prompt.control(tokens.think);
    if (message.reasoning) prompt.plain(*message.reasoning);
  }
  if (thinking.close) prompt.control(tokens.end_think);
  prompt.content(message.content, tokens.image);
  if (calls) {
    std::vector<const ToolCall*> sorted;
    for (const ToolCall& call : *message.tool_calls) sorted.push_back(&call);
    if (!v41_) {
      std::sort(sorted.begin(), sorted.end(), [](const ToolCall* a, const ToolCall* b) {
        return a->id != b->id ? a->id < b->id : a < b;  // equal ids keep their order
      });
    }
    call_block(sorted);
  }
  // V4 ends a prefix that is not the last turn, V4.1 does not.
  if (!(message.prefix && (last || v41_))) prompt.control(tokens.end);
}

void DeepSeekWriter::header(bool continued) {
  if (!continued) {
    prompt.control(tokens.assistant);
    prompt.control(conversation.thinking ? tokens.think : tokens.end_think);
  }
  if (conversation.tool_choice == ToolChoice::required && conversation.shows_tools())
    pattern("\n\n<{D}{B}>\n");
}

PromptPieces render_deepseek(const Conversation& conversation, DeepSeekVersion version,
                             const DeepSeekTokens& tokens) {
  DeepSeekWriter writer(conversation, version, tokens);
  return version == DeepSeekVersion::v41 ? render_deepseek_v41(std::move(writer))
                                         : render_deepseek_v4(std::move(writer));
}

}  // namespace deepinfer::recipe
