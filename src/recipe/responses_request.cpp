#include "recipe/responses_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "recipe/apply_patch.h"
#include "recipe/responses_items.h"

namespace deepinfer::recipe {
namespace {

constexpr ProtocolNames kNames = {
    .messages = "input",
    .json_field = "text.format",
    .reasoning_error = "The `reasoning_text` in the thinking mode must be passed back to the API."};

constexpr uint32_t kMaxTopLogprobs = 20;

using Kind = ResponsesTool::Kind;

// The tools of a body under their converted names.
class ToolReader {
 public:
  ToolReader(const ResponsesBody& body, const ConversionOptions& options, DeepSeekVersion version,
             ResponsesEcho& echo)
      : body_(body), options_(options), v41_(version == DeepSeekVersion::v41), echo_(echo) {}

  Accepted<std::vector<Tool>> run() {
    if (!body_.tools) return std::move(tools_);
    for (const ResponsesTool& tool : *body_.tools) {
      if (tool.kind == Kind::function || tool.kind == Kind::custom) taken_.insert(tool.name);
    }
    for (size_t i = 0; i < body_.tools->size(); ++i) {
      if (Accepted<void> done = add((*body_.tools)[i], fmt::format("tools[{}]", i)); !done.ok())
        return std::move(done).error();
    }
    return std::move(tools_);
  }

 private:
  Accepted<void> add(const ResponsesTool& tool, const std::string& field) {
    switch (tool.kind) {
      case Kind::function:
        TRY(accept_tool_name(tool.name, field + ".name"));
        tools_.push_back(tool_of(tool));
        return {};
      case Kind::custom:
        return add_custom(tool);
      case Kind::name_space:
        return add_namespace(tool, field);
      case Kind::tool_search:
        if (!v41_ || tool.execution != "client") return {};
        echo_.tool_search = true;
        tools_.push_back(tool_of(tool));
        return {};
      case Kind::web_search:
        if (options_.responses_web_search == ConversionOptions::WebSearch::drop) return {};
        return refused("server_tool", "tools", "web_search is not supported");
      case Kind::other:
        return {};
    }
    return {};
  }

  Accepted<void> add_custom(const ResponsesTool& tool) {
    if (tool.name != kApplyPatchName) {
      return refused("custom_tool", "tools",
                     "the custom tool " + tool.name + " is not supported, only " +
                         std::string(kApplyPatchName));
    }
    echo_.custom_tools.insert(tool.name);
    tools_.push_back(apply_patch_tool(v41_ ? DeepSeekVersion::v41 : DeepSeekVersion::v4));
    return {};
  }

  Accepted<void> add_namespace(const ResponsesTool& tool, const std::string& field) {
    TRY(accept_tool_name(tool.name, field + ".name"));
    std::set<std::string_view> local;
    for (size_t i = 0; i < tool.members.size(); ++i) {
      const ResponsesTool& member = tool.members[i];
      const std::string place = fmt::format("{}.tools[{}]", field, i);
      if (member.kind == Kind::custom)
        return refused("custom_in_namespace", place,
                       "the custom tool " + member.name + " must not be in a namespace");
      if (member.kind != Kind::function) continue;
      TRY(accept_tool_name(member.name, place + ".name"));
      if (!local.insert(member.name).second)
        return refused("duplicate_tool", "tools",
                       "the namespace " + tool.name + " has " + member.name + " twice");
      Tool converted = tool_of(member);
      converted.name = free_name(joined_tool_name(tool.name, member.name, v41_));
      if (v41_ && tool.description && !tool.description->empty())
        converted.description = *tool.description + "\n" + member.description.value_or("");
      echo_.namespaces[converted.name] = {tool.name, member.name};
      tools_.push_back(std::move(converted));
    }
    return {};
  }

  std::string free_name(const std::string& wanted) {
    std::string name = wanted;
    for (size_t n = 1; !taken_.insert(name).second; ++n) name = fmt::format("{}_{}", wanted, n);
    return name;
  }

  const ResponsesBody& body_;
  const ConversionOptions& options_;
  const bool v41_;
  ResponsesEcho& echo_;
  std::set<std::string> taken_;
  std::vector<Tool> tools_;
};

// The shortest decimal that reads back as the same single precision value.
Json single(float value) { return std::stod(fmt::format("{}", value)); }

Json pair_of(std::string_view first, Json a, std::string_view second, Json b) {
  Json out = Json::object();
  out.set(first, std::move(a));
  out.set(second, std::move(b));
  return out;
}

void fill_echo(const ResponsesBody& body, ResponsesEcho& echo) {
  Json& out = echo.members;
  out.set("instructions", body.instructions ? Json(*body.instructions) : Json());
  out.set("max_output_tokens",
          body.max_output_tokens ? Json(uint64_t{*body.max_output_tokens}) : Json());
  out.set("reasoning", pair_of("effort", body.effort_echo, "summary", body.summary_echo));
  out.set("temperature", single(body.temperature.value_or(1.0f)));
  Json format = body.format_echo;
  if (format.is_null()) {
    format = Json::object();
    format.set("type", "text");
  }
  out.set("text", pair_of("format", std::move(format), "verbosity", body.verbosity_echo));
  out.set("tool_choice", body.choice_echo);
  Json tools = Json::array();
  for (const ResponsesTool& tool : body.tools.value_or(std::vector<ResponsesTool>())) {
    Json one = echo_of(tool);
    if (!one.is_null()) tools.push_back(std::move(one));
  }
  out.set("tools", std::move(tools));
  out.set("top_logprobs", Json(int{body.top_logprobs.value_or(0)}));
  out.set("top_p", single(body.top_p.value_or(1.0f)));
  out.set("user", body.user ? Json(*body.user) : Json());
}

Accepted<void> accept_numbers(const ResponsesBody& body, const ConversionOptions& options,
                              bool thinking) {
  TRY(accept_range(body.temperature, "temperature", 0, 2));
  TRY(accept_range(body.top_p, "top_p", 0, 1, false));
  if (body.top_logprobs && *body.top_logprobs > kMaxTopLogprobs) {
    return refused("out_of_range", "top_logprobs",
                   fmt::format("{} is above {}", *body.top_logprobs, kMaxTopLogprobs));
  }
  return accept_max_tokens(body.max_output_tokens, thinking, options);
}

}  // namespace

std::string joined_tool_name(std::string_view name_space, std::string_view name, bool v41) {
  return fmt::format("{}{}{}", name_space, v41 ? "::" : "__", name);
}

Tool tool_of(const ResponsesTool& source) {
  Tool tool;
  tool.name = source.name;
  tool.description = source.description;
  tool.parameters = source.parameters;
  tool.strict = source.strict;
  return tool;
}

Json echo_of(const ResponsesTool& tool) {
  const auto text = [](const std::optional<std::string>& value) {
    return value ? Json(*value) : Json();
  };
  Json out = Json::object();
  switch (tool.kind) {
    case Kind::function:
      out.set("type", "function");
      out.set("name", tool.name);
      out.set("description", text(tool.description));
      out.set("parameters", tool.parameters);
      out.set("strict", tool.strict ? Json(*tool.strict) : Json());
      return out;
    case Kind::name_space: {
      out.set("type", "namespace");
      out.set("name", tool.name);
      out.set("description", text(tool.description));
      Json members = Json::array();
      for (const ResponsesTool& member : tool.members) {
        Json one = echo_of(member);
        if (!one.is_null()) members.push_back(std::move(one));
      }
      out.set("tools", std::move(members));
      return out;
    }
    case Kind::custom:
      out.set("type", "custom");
      out.set("name", tool.name);
      return out;
    case Kind::tool_search:
      out.set("type", "tool_search");
      out.set("execution", text(tool.execution));
      out.set("description", text(tool.description));
      out.set("parameters", tool.parameters);
      return out;
    case Kind::web_search:
      out.set("type", "web_search");
      out.set("search_context_size", tool.search_context_size);
      out.set("user_location", tool.user_location);
      return out;
    case Kind::other:
      break;
  }
  return Json();
}

Accepted<ResponsesRequest> accept_responses(const ResponsesBody& body,
                                            const ConversionOptions& options) {
  ResponsesRequest out;
  Request& request = out.request;
  request.version = TRY(accept_model(options, body.model));
  std::vector<Tool> tools = TRY(ToolReader(body, options, request.version, out.echo).run());
  settle_thinking({std::nullopt, body.effort}, options, request.conversation);
  std::vector<Tool> found;
  TRY(read_items(body, request, found));
  for (Tool& tool : found) tools.push_back(std::move(tool));
  TRY(settle_tools(std::move(tools), body.tool_choice.value_or(ChoiceAsked()), request));
  request.conversation.format = body.format;
  if (body.format.kind == FormatKind::json_object)
    TRY(accept_word_json(request.conversation, kNames));
  Json constraint_schema;
  if (body.format.kind == FormatKind::json_schema)
    constraint_schema = TRY(accept_format_schema(body.format.schema, body.format_strict));
  TRY(accept_strict_mix(request.conversation));
  TRY(accept_numbers(body, options, request.conversation.thinking));
  TRY(settle_reasoning(options, kNames, request.conversation));

  request.stream = body.stream == true;
  settle_sampling(body.temperature, body.top_p, request);
  request.inference.max_tokens = body.max_output_tokens;
  request.inference.logprobs = body.top_logprobs.value_or(0) > 0;
  request.inference.top_logprobs = body.top_logprobs;
  settle_answer(constraint_schema, request);
  fill_echo(body, out.echo);
  return out;
}

}  // namespace deepinfer::recipe
