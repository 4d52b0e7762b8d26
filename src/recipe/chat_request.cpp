#include "recipe/chat_request.h"

#include <fmt/format.h>

#include <set>

#include "recipe/image_source.h"

namespace deepinfer::recipe {
namespace {

constexpr ProtocolNames kNames = {
    .messages = "messages",
    .json_field = "response_format",
    .reasoning_error =
        "The `reasoning_content` in the thinking mode must be passed back to the API."};

constexpr uint64_t kMaxSeed = (uint64_t{1} << 63) - 1;
constexpr uint32_t kMaxTopLogprobs = 20;

std::string place(size_t index) { return fmt::format("messages[{}]", index); }

// Messages about images name their place with a dot before it, as paths do.
template <class T>
Accepted<T> dotted(Accepted<T> accepted) {
  if (accepted.ok()) return accepted;
  Refusal refusal = std::move(accepted).error();
  refusal.message.insert(0, ".");
  return refusal;
}

// The URL that a file part stands for.
Accepted<std::string> file_url(const ChatPart& part, const std::string& field) {
  if (part.file_id && (part.file_data || part.filename))
    return refused("file_both", field, "a file has either file_id or file_data");
  if (part.file_id) return refused("file_id", field, "file_id is not supported, send file_data");
  if (!part.file_data) return refused("file_empty", field, "a file needs file_data");
  if (!part.file_data->starts_with("data:"))
    return refused("file_data", field, "file_data must be a data URL in base64");
  return *part.file_data;
}

Accepted<Content> content_of(const ChatMessage& message, size_t index, DeepSeekVersion version) {
  if (!message.content) return Content();
  if (const auto* text = std::get_if<std::string>(&*message.content)) return Content(*text);
  Content content;
  bool first = true;
  for (const ChatPart& part : std::get<std::vector<ChatPart>>(*message.content)) {
    if (!first) content.append("\n\n");
    first = false;
    if (part.kind == ChatPart::Kind::text) {
      content.append(part.text);
      continue;
    }
    if (version == DeepSeekVersion::v4) {
      content.append(kUnsupportedImage);
      continue;
    }
    const std::string field = place(index);
    if (message.role == Role::assistant)
      return refused("image_in_assistant", "messages", field + ": assistants show no images");
    std::string url = part.text;
    if (part.kind == ChatPart::Kind::file) url = TRY(dotted(file_url(part, field)));
    content.append_image(
        TRY(dotted(accept_image_url(std::move(url), part.detail, "." + field, field))));
  }
  return content;
}

// Calls and the results that must follow them at once.
class Pairing {
 public:
  Accepted<void> next(const ChatMessage& message, size_t index) {
    if (message.role == Role::tool) return result(*message.tool_call_id, index);
    TRY(close());
    if (message.role != Role::assistant || !message.tool_calls) return {};
    if (message.tool_calls->empty())
      return refused("empty_array", place(index) + ".tool_calls", "is empty");
    for (const ToolCall& call : *message.tool_calls) {
      if (!open_.insert(call.id).second) {
        return refused("duplicate_tool_call_id", "messages",
                       fmt::format("{}: the id {} stands twice", place(index), call.id));
      }
    }
    calls_ = open_;
    return {};
  }

  Accepted<void> close() {
    if (open_.empty()) {
      calls_.clear();
      return {};
    }
    std::string ids;
    for (const std::string& id : open_) ids += (ids.empty() ? "" : ", ") + id;
    return refused("missing_tool_results", "messages",
                   "an assistant's tool_calls must be followed by a tool message for each "
                   "tool_call_id; there is none for " +
                       ids);
  }

 private:
  Accepted<void> result(const std::string& id, size_t index) {
    if (open_.erase(id) == 1) return {};
    if (calls_.contains(id) && !open_.empty()) {
      return refused("duplicate_tool_call_id", "messages",
                     fmt::format("{}: {} was answered before", place(index), id));
    }
    if (open_.empty()) {
      return refused("tool_message_out_of_place", "messages",
                     place(index) + ": a tool message must follow the assistant's tool_calls");
    }
    return refused("unexpected_tool_call_id", "messages",
                   fmt::format("{}: no call has the tool_call_id {}", place(index), id));
  }

  std::set<std::string> calls_, open_;
};

Accepted<void> accept_prefix(const ChatBody& body, size_t index) {
  const ChatMessage& message = body.messages[index];
  if (message.role != Role::assistant || message.prefix != true) return {};
  if (index + 1 != body.messages.size())
    return refused("prefix_not_last", "messages", "only the last message may have prefix");
  if (body.tools && !body.tools->empty())
    return refused("prefix_with_tools", "tools", "prefix does not go together with tools");
  if (body.response_format && body.response_format->kind == FormatKind::json_object) {
    return refused("prefix_with_json_object", "response_format",
                   "prefix does not go together with json_object");
  }
  return {};
}

Accepted<void> accept_messages(const ChatBody& body, Request& request) {
  if (body.messages.empty()) return refused("empty_messages", "messages", "there are none");
  Pairing pairing;
  for (size_t i = 0; i < body.messages.size(); ++i) {
    const ChatMessage& message = body.messages[i];
    if (message.role == Role::assistant && !message.content && !message.tool_calls) {
      return refused("assistant_without_content", "messages",
                     place(i) + ": an assistant's message needs content or tool_calls");
    }
    TRY(pairing.next(message, i));
    Message out;
    out.role = message.role;
    out.content = TRY(content_of(message, i, request.version));
    TRY(accept_prefix(body, i));
    out.reasoning = message.reasoning_content;
    out.tool_calls = message.tool_calls;
    out.tool_call_id = message.tool_call_id;
    out.prefix = message.role == Role::assistant && message.prefix == true;
    if (out.role == Role::system && out.content.empty()) continue;
    request.conversation.messages.push_back(std::move(out));
  }
  return pairing.close();
}

// The format, and the schema that the constraint shows.
Accepted<Json> accept_format(const ChatBody& body, Request& request) {
  if (!body.response_format) return Json();
  const ChatFormat& asked = *body.response_format;
  request.conversation.format = {asked.kind, asked.schema, asked.regex};
  if (asked.kind != FormatKind::json_schema) return Json();
  return accept_format_schema(asked.schema, asked.strict);
}

Accepted<void> accept_numbers(const ChatBody& body, const ConversionOptions& options,
                              bool thinking) {
  if (body.n.value_or(1) != 1)
    return refused("n_not_one", "n",
                   fmt::format("{} answers were asked for, only 1 is possible", *body.n));
  TRY(accept_range(body.presence_penalty, "presence_penalty", -2, 2));
  TRY(accept_range(body.frequency_penalty, "frequency_penalty", -2, 2));
  TRY(accept_range(body.temperature, "temperature", 0, 2));
  TRY(accept_range(body.top_p, "top_p", 0, 1, false));
  if (body.top_logprobs) {
    if (body.logprobs != true)
      return refused("needs_logprobs", "top_logprobs", "needs logprobs to be true");
    if (*body.top_logprobs > kMaxTopLogprobs) {
      return refused("out_of_range", "top_logprobs",
                     fmt::format("{} is above {}", *body.top_logprobs, kMaxTopLogprobs));
    }
  }
  TRY(accept_max_tokens(body.max_tokens, thinking, options));
  if (body.seed && *body.seed > kMaxSeed)
    return refused("out_of_range", "seed", fmt::format("{} is above {}", *body.seed, kMaxSeed));
  return {};
}

Accepted<void> accept_chat_stops(const ChatBody& body) {
  if (!body.stop) return {};
  if (body.stop_is_text && body.stop->front().empty())
    return refused("empty_string", "stop", "is empty");
  return accept_stops(*body.stop);
}

}  // namespace

Accepted<Request> accept_chat(const ChatBody& body, const ConversionOptions& options) {
  Request request;
  request.version = TRY(accept_model(options, body.model));
  std::vector<Tool> tools = body.tools.value_or(std::vector<Tool>());
  for (size_t i = 0; i < tools.size(); ++i)
    TRY(accept_tool_name(tools[i].name, fmt::format("tools[{}].function.name", i)));
  settle_thinking({body.thinking, body.reasoning_effort}, options, request.conversation);
  TRY(accept_messages(body, request));
  if (body.response_format && body.response_format->kind == FormatKind::json_object)
    TRY(accept_word_json(request.conversation, kNames));
  TRY(settle_tools(std::move(tools), body.tool_choice.value_or(ChoiceAsked()), request));
  TRY(accept_chat_stops(body));
  if (body.stream_options && body.stream != true) {
    return refused("stream_options_without_stream", "stream_options", "needs stream to be true");
  }
  const Json constraint_schema = TRY(accept_format(body, request));
  TRY(accept_strict_mix(request.conversation));
  TRY(accept_numbers(body, options, request.conversation.thinking));
  TRY(settle_reasoning(options, kNames, request.conversation));

  request.stream = body.stream == true;
  request.null_usage = !request.stream || body.include_usage == true;
  settle_sampling(body.temperature, body.top_p, request);
  request.inference.max_tokens = body.max_tokens;
  request.inference.logprobs = body.logprobs == true;
  request.inference.top_logprobs = body.top_logprobs;
  request.inference.seed = body.seed;
  request.parsing.stop_sequences = body.stop.value_or(std::vector<std::string>());
  settle_answer(constraint_schema, request);
  return request;
}

}  // namespace deepinfer::recipe
