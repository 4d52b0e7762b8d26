#include "recipe/conversion.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "recipe/json_schema.h"

namespace deepinfer::recipe {
namespace {

constexpr size_t kMaxStops = 16;
constexpr size_t kMaxToolName = 128;
constexpr float kTopPWithTools = 0.95f;

Json function_json(const Tool& tool) {
  Json function = Json::object();
  function.set("name", tool.name);
  function.set("description", tool.description ? Json(*tool.description) : Json());
  function.set("parameters", tool.parameters);
  function.set("strict", tool.strict ? Json(*tool.strict) : Json());
  Json out = Json::object();
  out.set("type", "function");
  out.set("function", std::move(function));
  if (tool.defer_loading) out.set("defer_loading", true);
  return out;
}

bool says_json(std::string_view text) {
  constexpr std::string_view kWord = "json";
  const auto found =
      std::search(text.begin(), text.end(), kWord.begin(), kWord.end(),
                  [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; });
  return found != text.end();
}

// "call_07_ET_…": the answer that made the call had no reasoning to send back.
bool marks_empty_thinking(std::string_view id) {
  const auto digit = [&](size_t at) { return id[at] >= '0' && id[at] <= '9'; };
  return id.size() >= 11 && id.starts_with("call_") && digit(5) && digit(6) &&
         id.substr(7).starts_with("_ET_");
}

Accepted<void> settle_parameters(Tool& tool) {
  if (tool.strict == true) {
    Json schema = tool.parameters;
    if (schema.is_null()) {
      schema = Json::object();
      schema.set("type", "object");
    }
    Result<Json> strict = strict_schema(schema, true);
    if (!strict.ok())
      return refused("strict_schema", "tools",
                     "the parameters of " + tool.name + ": " + strict.error().text());
    tool.parameters = std::move(strict).value();
    return {};
  }
  if (tool.parameters.is_null()) {
    tool.parameters = Json::object();
    return {};
  }
  if (Result<void> valid = check_json_schema(tool.parameters); !valid.ok())
    return refused("schema_invalid", tool.name,
                   "the parameters are no JSON schema: " + valid.error().text());
  const Json* type = tool.parameters.find("type");
  if (type == nullptr || !type->is("object"))
    return refused("schema_not_object", tool.name,
                   "the parameters must be a schema with \"type\": \"object\"");
  return {};
}

}  // namespace

Accepted<DeepSeekVersion> accept_model(const ConversionOptions& options, std::string_view name) {
  const auto found = options.models.find(name);
  if (found != options.models.end()) return found->second;
  std::string known;
  for (const auto& [one, version] : options.models) known += (known.empty() ? "" : ", ") + one;
  return refused("unknown_model", "model",
                 fmt::format("\"{}\" is not known; known are {}", name, known));
}

Accepted<void> accept_tool_name(std::string_view name, const std::string& field) {
  if (name.empty()) return refused("empty_string", field, "is empty");
  if (name.size() > kMaxToolName) {
    return refused("too_long", field,
                   fmt::format("has {} characters, the most is {}", name.size(), kMaxToolName));
  }
  for (const char c : name) {
    const bool fits = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '_' || c == '-';
    if (!fits) return refused("bad_name", field, "may hold letters, digits, \"_\" and \"-\" only");
  }
  return {};
}

void settle_thinking(const ThinkingAsked& asked, const ConversionOptions& options,
                     Conversation& conversation) {
  const bool effort = asked.effort && *asked.effort != EffortWord::none;
  conversation.thinking = asked.type     ? *asked.type
                          : asked.effort ? effort
                                         : options.default_thinking;
  conversation.effort.reset();
  if (!conversation.thinking) return;
  conversation.effort = Effort::high;
  if (!asked.effort) return;
  switch (*asked.effort) {
    case EffortWord::minimal:
    case EffortWord::low:
      conversation.effort = Effort::low;
      break;
    case EffortWord::xhigh:
      conversation.effort = Effort::xhigh;
      break;
    case EffortWord::ultra:
    case EffortWord::max:
      conversation.effort = Effort::max;
      break;
    default:
      break;
  }
}

Accepted<void> settle_tools(std::vector<Tool> tools, const ChoiceAsked& choice, Request& request) {
  Conversation& conversation = request.conversation;
  conversation.tool_choice = choice.choice;
  if (choice.choice == ToolChoice::none) return {};
  std::set<std::string_view> names;
  for (const Tool& tool : tools) {
    if (!names.insert(tool.name).second)
      return refused("duplicate_tool", "tools", "the name " + tool.name + " stands twice");
  }
  for (Tool& tool : tools) TRY(settle_parameters(tool));
  conversation.tools = std::move(tools);
  if (choice.choice != ToolChoice::required) return {};
  if (conversation.tools.empty()) {
    conversation.tool_choice = ToolChoice::automatic;
    return {};
  }
  if (choice.name) {
    std::erase_if(conversation.tools, [&](const Tool& tool) { return tool.name != *choice.name; });
    if (conversation.tools.empty()) {
      return refused("unknown_tool", "tool_choice",
                     "there is no tool with the name " + *choice.name);
    }
  }
  if (conversation.thinking) {
    return Refusal{RefusalKind::conversion, "tool_choice_in_thinking", "tool_choice",
                   "Thinking mode does not support this tool_choice"};
  }
  return {};
}

Accepted<void> accept_strict_mix(const Conversation& conversation) {
  const auto strict = [](const Tool& tool) { return tool.strict == true; };
  const std::vector<Tool>& tools = conversation.tools;
  if (std::none_of(tools.begin(), tools.end(), strict)) return {};
  if (!std::all_of(tools.begin(), tools.end(), strict))
    return refused("strict_mixed", "tools", "all tools must be strict, or none");
  if (conversation.format.kind == FormatKind::text) return {};
  return refused("strict_with_format", "response_format", "does not go together with strict tools");
}

Accepted<Json> accept_format_schema(const Json& schema, bool strict) {
  if (strict) {
    Result<Json> form = strict_schema(schema, false);
    if (!form.ok()) return refused("strict_schema", "response_format", form.error().text());
    return std::move(form).value();
  }
  if (Result<void> valid = check_json_schema(schema); !valid.ok())
    return refused("schema_invalid", "response_format",
                   "is no JSON schema: " + valid.error().text());
  return schema;
}

Accepted<void> accept_word_json(const Conversation& conversation, const ProtocolNames& names) {
  for (const Message& message : conversation.messages) {
    if (says_json(message.content.text)) return {};
  }
  return refused("needs_word_json", std::string(names.json_field),
                 fmt::format("some of the {} must say \"json\" when json_object is asked for",
                             names.messages));
}

Accepted<void> accept_stops(const std::vector<std::string>& stops) {
  if (stops.size() > kMaxStops) {
    return refused("too_many_stops", "stop",
                   fmt::format("has {} strings, the most is {}", stops.size(), kMaxStops));
  }
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) return refused("empty_string", fmt::format("stop[{}]", i), "is empty");
  }
  return {};
}

Accepted<void> accept_range(const std::optional<float>& value, std::string_view field, float low,
                            float high, bool low_included) {
  if (!value) return {};
  const bool above = low_included ? *value >= low : *value > low;
  if (above && *value <= high) return {};
  return refused(
      "out_of_range", std::string(field),
      fmt::format("{} is not in the range {}{}, {}]", *value, low_included ? '[' : '(', low, high));
}

uint64_t max_tokens_bound(bool thinking, const ConversionOptions& options) {
  return thinking ? options.thinking_max_tokens : options.plain_max_tokens;
}

Accepted<void> accept_max_tokens(const std::optional<uint64_t>& asked, bool thinking,
                                 const ConversionOptions& options) {
  const uint64_t bound = max_tokens_bound(thinking, options);
  if (!asked || (*asked >= 1 && *asked <= bound)) return {};
  return refused("out_of_range", "max_tokens",
                 fmt::format("{} is not in the range [1, {}]", *asked, bound));
}

Accepted<void> settle_reasoning(const ConversionOptions& options, const ProtocolNames& names,
                                Conversation& conversation) {
  std::vector<Message>& messages = conversation.messages;
  if (!conversation.thinking) {
    for (Message& message : messages) message.reasoning.reset();
    return {};
  }
  if (options.missing_reasoning == ConversionOptions::MissingReasoning::reject) {
    for (size_t i = messages.size() - 1; i < messages.size(); --i) {
      const Message& message = messages[i];
      if (message.role == Role::user) break;
      if (message.role != Role::assistant || message.reasoning || message.prefix) continue;
      const bool calls = message.tool_calls && !message.tool_calls->empty();
      const auto empty = [](const ToolCall& call) { return marks_empty_thinking(call.id); };
      const bool exempt =
          calls ? std::any_of(message.tool_calls->begin(), message.tool_calls->end(), empty)
                : !conversation.shows_tools();
      if (exempt) continue;
      return Refusal{RefusalKind::conversion, "reasoning_missing", std::string(names.messages),
                     std::string(names.reasoning_error)};
    }
  }
  for (Message& message : messages) {
    if (message.role == Role::assistant && !message.reasoning) message.reasoning.emplace();
  }
  return {};
}

void settle_sampling(const std::optional<float>& temperature, const std::optional<float>& top_p,
                     Request& request) {
  const Conversation& conversation = request.conversation;
  const bool thinking = conversation.thinking;
  request.inference.temperature = thinking ? 1.0f : temperature.value_or(1.0f);
  float& chosen = request.inference.top_p;
  if (request.version == DeepSeekVersion::v41) {
    chosen = thinking ? std::max(top_p.value_or(1.0f), kTopPWithTools) : 1.0f;
  } else if (thinking) {
    chosen = conversation.tools.empty() ? 1.0f : kTopPWithTools;
  } else {
    chosen = top_p.value_or(1.0f);
  }
}

void settle_answer(const Json& constraint_schema, Request& request) {
  const Conversation& conversation = request.conversation;
  ParsingOptions& parsing = request.parsing;
  const bool required = conversation.tool_choice == ToolChoice::required;
  const bool tools = !conversation.tools.empty();
  parsing.parse_tool_calls = tools;
  parsing.starts_in_tool_calls = tools && required;
  parsing.parse_json_output = conversation.format.kind == FormatKind::json_object;
  parsing.stage = ThinkingStage::none;
  if (conversation.thinking) {
    parsing.stage = ThinkingStage::reasoning_start;
    if (conversation.continues()) {
      const Message& last = conversation.messages.back();
      if (!last.content.empty()) {
        parsing.stage = ThinkingStage::content_continuation;
      } else if (last.reasoning && !last.reasoning->empty()) {
        parsing.stage = ThinkingStage::reasoning_continuation;
      }
    }
  }
  std::optional<OutputConstraint>& constraint = request.inference.constraint;
  if (tools) {
    Json list = Json::array();
    for (const Tool& tool : conversation.tools) list.push_back(function_json(tool));
    constraint = {required ? ConstraintKind::tool_call_required : ConstraintKind::tool_call,
                  list.text(JsonStyle::compact)};
  } else if (conversation.format.kind == FormatKind::json_schema) {
    constraint = {ConstraintKind::json, constraint_schema.text(JsonStyle::compact)};
  } else if (conversation.format.kind == FormatKind::json_object) {
    constraint = {ConstraintKind::json, ""};
  } else if (conversation.format.kind == FormatKind::regex) {
    constraint = {ConstraintKind::regex, conversation.format.regex};
  }
}

}  // namespace deepinfer::recipe
