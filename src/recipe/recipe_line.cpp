#include "recipe/recipe_line.h"

#include <cmath>

#include "recipe/common_form.h"
#include "recipe/line_answer.h"

namespace deepinfer::recipe {
namespace {

Result<ConversionOptions> options_of(const JsonValue& line) {
  ConversionOptions options;
  options.models.emplace("v4", DeepSeekVersion::v4);
  options.models.emplace("v41", DeepSeekVersion::v41);
  const JsonValue* given = line.find("options");
  if (given == nullptr || given->is_null()) return options;
  using Search = ConversionOptions::WebSearch;
  const auto search = [&](std::string_view key, Search fallback) -> Result<Search> {
    const std::string word = TRY(given->get_or<std::string>(key, ""));
    return word == "Drop" ? Search::drop : word == "Reject" ? Search::reject : fallback;
  };
  options.default_thinking = TRY(given->get_or("default_thinking_mode", options.default_thinking));
  if (TRY(given->get_or<std::string>("reasoning_content_behavior", "")) == "Reject")
    options.missing_reasoning = ConversionOptions::MissingReasoning::reject;
  options.responses_web_search = TRY(search("responses_web_search", options.responses_web_search));
  options.messages_web_search = TRY(search("messages_web_search", options.messages_web_search));
  options.thinking_max_tokens =
      TRY(given->get_or("thinking_max_tokens_upper_bound", options.thinking_max_tokens));
  options.plain_max_tokens =
      TRY(given->get_or("non_thinking_max_tokens_upper_bound", options.plain_max_tokens));
  return options;
}

// The request as the text of a body; a string is that text already.
Result<std::string> body_of(const JsonValue& line) {
  const JsonValue* request = TRY(line.member("request"));
  if (request->is_string()) return request->as<std::string>();
  const Json tree = TRY(Json::from(*request));
  return tree.text(JsonStyle::compact);
}

Json refusal_json(const Refusal& refusal) {
  Json out = Json::object();
  out.set("kind", refusal_kind_name(refusal.kind));
  out.set("status", refusal.status());
  if (refusal.kind == RefusalKind::conversion) {
    out.set("type", "invalid_request_error");
    out.set("code", "invalid_request_error");
  }
  out.set("category", refusal.category);
  if (!refusal.field.empty()) out.set("field", refusal.field);
  out.set("message", refusal.message);
  return out;
}

// Numbers of temperature and top_p may differ by less than 1e-6: they are single precision.
bool same_number(std::string_view key, const Json& a, const Json& b) {
  if (key != "temperature" && key != "top_p") return false;
  return a.is_number() && b.is_number() && std::fabs(a.number() - b.number()) < 1e-6;
}

// Where two values first differ; members in the same order.
std::optional<std::string> first_difference(const Json& expected, const Json& found,
                                            const std::string& path, std::string_view key) {
  if (expected == found || same_number(key, expected, found)) return std::nullopt;
  if (expected.is_array() && found.is_array() && expected.items().size() == found.items().size()) {
    for (size_t i = 0; i < found.items().size(); ++i) {
      auto inner = first_difference(expected.items()[i], found.items()[i],
                                    path + "[" + std::to_string(i) + "]", "");
      if (inner) return inner;
    }
    return std::nullopt;
  }
  if (expected.is_object() && found.is_object() &&
      expected.members().size() == found.members().size()) {
    for (size_t i = 0; i < found.members().size(); ++i) {
      const Json::Member& a = expected.members()[i];
      const Json::Member& b = found.members()[i];
      if (a.key != b.key) return path + ": expected the member " + a.key + ", found " + b.key;
      auto inner = first_difference(a.value, b.value, path + "." + a.key, a.key);
      if (inner) return inner;
    }
    return std::nullopt;
  }
  return path + ": expected " + expected.text(JsonStyle::compact) + ", found " +
         found.text(JsonStyle::compact);
}

// Every member of `expected` but `mentions` is in the output; the message mentions its pieces.
std::optional<std::string> refusal_difference(const Json& expected, const Json& found) {
  for (const Json::Member& member : expected.members()) {
    if (member.key == "mentions") {
      const Json* message = found.find("message");
      if (message == nullptr) return "expected an error, found " + found.text(JsonStyle::compact);
      for (const Json& piece : member.value.items()) {
        if (message->string().find(piece.string()) == std::string::npos)
          return "the message does not mention " + piece.string() + ": " + message->string();
      }
      continue;
    }
    const Json* value = found.find(member.key);
    if (value == nullptr || *value != member.value) {
      return member.key + ": expected " + member.value.text(JsonStyle::compact) + ", found " +
             found.text(JsonStyle::compact);
    }
  }
  return std::nullopt;
}

// [completion tokens, reasoning tokens]; the latter only when they are expected.
Json usage_json(const std::vector<AnswerEvent>& events, const Json& wanted) {
  const AnswerUsage& usage = events.back().usage;
  const bool reasoning = wanted.items().back().is_number() && usage.reasoning_tokens.has_value();
  return Json::Array{Json(usage.completion_tokens),
                     reasoning ? Json(*usage.reasoning_tokens) : Json()};
}

Json ranges_json(std::span<const ByteRange> ranges) {
  Json out = Json::array();
  for (const ByteRange& range : ranges) {
    out.push_back(Json::Array{Json(static_cast<int64_t>(range.begin)),
                              Json(static_cast<int64_t>(range.end))});
  }
  return out;
}

}  // namespace

std::optional<Protocol> protocol_from_name(std::string_view name) {
  if (name == "chat") return Protocol::chat;
  if (name == "anthropic") return Protocol::messages;
  if (name == "responses") return Protocol::responses;
  return std::nullopt;
}

Accepted<LineRunner::Converted> LineRunner::convert_body(Protocol protocol, const std::string& body,
                                                         const ConversionOptions& options) const {
  if (protocol == Protocol::chat) {
    const ChatBody read = TRY(read_chat_body(body));
    return Converted{TRY(accept_chat(read, options)), {}};
  }
  if (protocol == Protocol::messages) {
    const MessagesBody read = TRY(read_messages_body(body));
    return Converted{TRY(accept_messages(read, options)), {}};
  }
  const ResponsesBody read = TRY(read_responses_body(body));
  ResponsesRequest accepted = TRY(accept_responses(read, options));
  return Converted{std::move(accepted.request), std::move(accepted.echo)};
}

Result<Json> LineRunner::run(LineTask task, const JsonValue& line) const {
  if (task == LineTask::encode) return encode(line);
  if (task == LineTask::parse) return parse(line);
  return line.find("kind") == nullptr && line.find("protocol") != nullptr ? refused_line(line)
                                                                          : convert(line);
}

Result<Json> LineRunner::encode(const JsonValue& line) const {
  Conversation conversation;
  DeepSeekVersion version = DeepSeekVersion::v41;
  const JsonValue* given = line.find("conversation");
  if (given == nullptr && line.find("messages") != nullptr) given = &line;
  if (given != nullptr) {
    conversation = TRY(conversation_from_json(*given));
  } else {
    const std::string source = TRY(line.get_or<std::string>("source", ""));
    const std::string body = TRY(body_of(line));
    const ConversionOptions options = TRY(options_of(line));
    Accepted<Converted> converted =
        convert_body(protocol_from_name(source).value_or(protocol_), body, options);
    if (!converted.ok()) return refusal_json(converted.error());
    version = converted.value().request.version;
    conversation = std::move(converted.value().request.conversation);
  }
  if (line.find("version") != nullptr) {
    const std::string name = TRY(line.get<std::string>("version"));
    version = name == "v4" ? DeepSeekVersion::v4 : DeepSeekVersion::v41;
  }
  const PromptPieces prompt =
      layout ? TRY(layout->render(conversation)) : render_deepseek(conversation, version);
  Json out = Json::object();
  out.set("prompt", prompt.text());
  out.set("special_ranges", ranges_json(prompt.control_ranges()));
  Json images = Json::array();
  for (const Image& image : prompt.images()) images.push_back(image_json(image));
  out.set("images", std::move(images));
  if (tokenizer(version)) {
    Json ids = Json::array();
    for (const int32_t id : TRY(prompt.encode(*tokenizer(version)))) ids.push_back(Json(id));
    out.set("ids", std::move(ids));
  }
  return out;
}

Result<Json> LineRunner::parse(const JsonValue& line) const {
  return parsed_message(TRY(parse_line(line, 0, v4)));
}

Result<Json> LineRunner::convert(const JsonValue& line) const {
  const std::string kind = TRY(line.get_or<std::string>("kind", "request"));
  if (kind == "response") return response(line);
  const std::string body = TRY(body_of(line));
  const ConversionOptions options = TRY(options_of(line));
  const Accepted<Converted> converted = convert_body(protocol_, body, options);
  if (!converted.ok()) return refusal_json(converted.error());
  if (kind == "request") return request_json(converted.value().request);
  if (kind != "resolve_max_tokens") return line.error("the kind " + kind + " is not known");
  const uint64_t prompt = TRY(line.get<uint64_t>("prompt_tokens"));
  const uint64_t context = TRY(line.get<uint64_t>("context_limit"));
  const Result<uint64_t> tokens = resolve_max_tokens(converted.value().request, prompt, context);
  if (tokens.ok()) return Json(tokens.value());
  return refusal_json(refused("context_exceeded", "max_tokens", tokens.error().what));
}

Result<Json> LineRunner::response(const JsonValue& line) const {
  const std::string body = TRY(body_of(line));
  const ConversionOptions options = TRY(options_of(line));
  const Accepted<Converted> converted = convert_body(protocol_, body, options);
  if (!converted.ok()) return refusal_json(converted.error());
  return answer_line(line, protocol_, converted.value().request, converted.value().echo, v4);
}

Result<Json> LineRunner::refused_line(const JsonValue& line) const {
  const std::string name = TRY(line.get<std::string>("protocol"));
  const std::optional<Protocol> protocol = protocol_from_name(name);
  if (!protocol) return line.error("the protocol " + name + " is not known");
  const std::string body = TRY(body_of(line));
  const ConversionOptions options = TRY(options_of(line));
  const Accepted<Converted> converted = convert_body(*protocol, body, options);
  return converted.ok() ? request_json(converted.value().request) : refusal_json(converted.error());
}

Result<std::optional<std::string>> LineRunner::difference(LineTask task, const JsonValue& line,
                                                          const Json& output) const {
  if (const JsonValue* error = line.find("expect_error")) {
    const Json expected = TRY(Json::from(*error));
    return refusal_difference(expected, output);
  }
  const JsonValue* expect = TRY(line.member("expect"));
  const Json expected = TRY(Json::from(*expect));
  if (line.find("kind") == nullptr && line.find("protocol") != nullptr)
    return refusal_difference(expected, output);
  Json wanted = expected;
  // Ids are compared when there are some.
  if (task == LineTask::encode && output.find("ids") == nullptr && wanted.is_object())
    std::erase_if(wanted.members(), [](const Json::Member& member) { return member.key == "ids"; });
  if (auto found = first_difference(wanted, output, "output", "")) return found;
  if (task != LineTask::parse) return std::optional<std::string>();
  const JsonValue* streams = line.find("streams");
  if (streams == nullptr) return std::optional<std::string>();
  for (const JsonMember& stream : TRY(streams->members())) {
    const size_t size = stream.key == "whole" ? 0 : std::stoul(stream.key);
    const std::vector<AnswerEvent> events = TRY(parse_line(line, size, v4));
    const Json wanted_deltas = TRY(Json::from(stream.value));
    const std::string place = "streams." + stream.key;
    if (auto found = first_difference(wanted_deltas, parsed_deltas(events), place, ""))
      return found;
    const JsonValue* usage = line.find("usage");
    if (usage == nullptr || usage->find(stream.key) == nullptr) continue;
    const Json wanted_usage = TRY(Json::from(*usage->find(stream.key)));
    if (auto found = first_difference(wanted_usage, usage_json(events, wanted_usage), place, ""))
      return found;
  }
  return std::optional<std::string>();
}

}  // namespace deepinfer::recipe
