#include "recipe/messages_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "recipe/image_source.h"

namespace deepinfer::recipe {
namespace {

using Kind = MessagesBlock::Kind;
using Blocks = std::vector<MessagesBlock>;

constexpr ProtocolNames kNames = {
    .messages = "messages",
    .json_field = "output_config",
    .reasoning_error =
        "The `content[].thinking` in the thinking mode must be passed back to the API."};

std::string place(size_t index) { return fmt::format("messages.{}", index); }
std::string place(size_t index, size_t block) {
  return fmt::format("messages.{}.content.{}", index, block);
}

Accepted<void> append_image(const MessagesBlock& block, DeepSeekVersion version,
                            const std::string& path, Content& out) {
  if (version == DeepSeekVersion::v4) {
    out.append(kUnsupportedImage);
    return {};
  }
  if (block.source == MessagesBlock::Source::file)
    return refused("file_id", path, "a file_id is not supported, send base64 or a URL");
  const std::string url = block.source == MessagesBlock::Source::url
                              ? block.data
                              : "data:" + block.media_type + ";base64," + block.data;
  out.append_image(TRY(accept_image_url(url, ImageDetail::high, path, path)));
  return {};
}

std::string document_text(const MessagesBlock& block) {
  return fmt::format("[Unsupported document type: {}]",
                     block.media_type.empty() ? "unknown" : block.media_type);
}

// Turns the messages of a body into those of a conversation.
class MessagesReader {
 public:
  MessagesReader(const MessagesBody& body, const ConversionOptions& options,
                 const std::vector<Tool>& tools, Request& request)
      : body_(body), options_(options), tools_(tools), request_(request) {}

  Accepted<void> run() {
    add_system();
    if (body_.messages.empty()) return refused("empty_messages", "messages", "there are none");
    for (size_t i = 0; i < body_.messages.size(); ++i) TRY(message(i));
    return close();
  }

 private:
  bool v41() const { return request_.version == DeepSeekVersion::v41; }
  Message& add(Role role) {
    Message& message = request_.conversation.messages.emplace_back();
    message.role = role;
    return message;
  }

  void add_system() {
    if (!body_.system) return;
    Message& system = add(Role::system);
    if (const auto* text = std::get_if<std::string>(&*body_.system)) {
      system.content = *text;
      return;
    }
    bool first = true;
    for (const MessagesBlock& block : std::get<Blocks>(*body_.system)) {
      // Accounting of a client, not meant for the model.
      const bool header = &block == std::get<Blocks>(*body_.system).data() &&
                          block.text.starts_with("x-anthropic-billing-header");
      if (header) continue;
      if (!first) system.content.append("\n\n");
      first = false;
      system.content.append(block.text);
    }
  }

  Accepted<void> message(size_t index) {
    const MessagesMessage& source = body_.messages[index];
    const auto* text = std::get_if<std::string>(&source.content);
    const Blocks* blocks = std::get_if<Blocks>(&source.content);
    if (blocks != nullptr && blocks->empty() && source.role != Role::system)
      return refused("empty_content", place(index), "the content is empty");
    if (source.role != Role::user || text != nullptr) TRY(close());
    switch (source.role) {
      case Role::assistant:
        return text != nullptr ? assistant_text(*text) : assistant(*blocks, index);
      case Role::system:
        return text != nullptr ? system_text(*text) : system(*blocks, index);
      default:
        if (blocks != nullptr) return user(*blocks, index);
        add(Role::user).content = *text;
        return {};
    }
  }

  Accepted<void> assistant_text(const std::string& text) {
    add(Role::assistant).content = text;
    return {};
  }

  Accepted<void> system_text(const std::string& text) {
    if (v41()) {
      add(Role::system).content = text;
    } else if (!text.empty()) {
      add(Role::user).content = "<system-reminder>\n" + text + "\n</system-reminder>";
    }
    return {};
  }

  Accepted<void> system(const Blocks& blocks, size_t index) {
    Content content;
    std::vector<Tool> added;
    bool first = true;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const MessagesBlock& block = blocks[i];
      if (block.kind == Kind::tool_addition) {
        const Tool* tool = find_tool(block.name);
        if (tool == nullptr)
          return refused("unknown_tool_addition", place(index, i),
                         "there is no tool with the name " + block.name);
        added.push_back(*tool);
        continue;
      }
      if (!first) content.append("\n\n");
      first = false;
      if (block.kind == Kind::text) {
        content.append(block.text);
      } else if (block.kind == Kind::image) {
        TRY(append_image(block, request_.version, place(index), content));
      } else if (block.kind == Kind::document) {
        content.append(document_text(block));
      } else {
        return refused("block_in_system", place(index, i), "has no place in a system message");
      }
    }
    if (!v41()) return system_text(content.text);
    Message& message = add(Role::system);
    message.content = std::move(content);
    if (!added.empty()) message.tools = std::move(added);
    return {};
  }

  Accepted<void> user(const Blocks& blocks, size_t index) {
    bool results = true;  // they stand before all other blocks
    for (size_t i = 0; i < blocks.size(); ++i) {
      const MessagesBlock& block = blocks[i];
      results = results && block.kind == Kind::tool_result;
      if (!results) TRY(close());
      switch (block.kind) {
        case Kind::tool_result:
          TRY(result(block, index, i));
          break;
        case Kind::text:
          add(Role::user).content = block.text;
          break;
        case Kind::image: {
          Content content;
          TRY(append_image(block, request_.version, fmt::format("{}.content[{}]", place(index), i),
                           content));
          add(Role::user).content = std::move(content);
          break;
        }
        case Kind::document:
          add(Role::user).content = document_text(block);
          break;
        case Kind::thinking:
          return refused("thinking_in_user", place(index) + ".content",
                         "thinking belongs to assistants");
        case Kind::tool_use:
          return refused("tool_use_in_user", place(index), "tool_use belongs to assistants");
        case Kind::tool_addition:
          return refused("tool_addition_in_user", place(index),
                         "tool_addition belongs to system messages");
        default:
          return refused("server_tool_in_user", place(index),
                         "tools of the server belong to assistants");
      }
    }
    return close();
  }

  Accepted<void> server_block() {
    if (options_.messages_web_search == ConversionOptions::WebSearch::drop) return {};
    return refused("server_tool_block", "messages", "tools of the server are not supported");
  }

  Accepted<void> result(const MessagesBlock& block, size_t index, size_t at) {
    const std::string field = place(index, at);
    if (open_.erase(block.id) == 0) {
      if (calls_.contains(block.id))
        return refused("duplicate_tool_result", field, block.id + " was answered before");
      return refused("unexpected_tool_use_id", field,
                     "no call before it has the tool_use_id " + block.id);
    }
    Content content;
    std::vector<Tool> referenced;
    for (const MessagesBlock& part : block.content) {
      if (&part != block.content.data()) content.append("\n\n");
      if (part.kind == Kind::text) {
        content.append(part.text);
      } else if (part.kind == Kind::image) {
        TRY(append_image(part, request_.version, field + ".tool_result", content));
      } else if (part.kind == Kind::document) {
        content.append(document_text(part));
      } else {
        const Tool* tool = find_tool(part.name);
        if (tool == nullptr)
          return refused("unknown_tool_reference", field,
                         "there is no tool with the name " + part.name);
        content.append(part.name);
        referenced.push_back(*tool);
      }
    }
    Message& message = add(Role::tool);
    message.tool_call_id = block.id;
    message.content = std::move(content);
    if (v41() && !referenced.empty()) add(Role::system).tools = std::move(referenced);
    return {};
  }

  Accepted<void> assistant(const Blocks& blocks, size_t index) {
    Message message;
    message.role = Role::assistant;
    bool first_text = true;
    std::vector<ToolCall> calls;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const MessagesBlock& block = blocks[i];
      switch (block.kind) {
        case Kind::text:
          if (!calls.empty()) {
            return refused("text_after_tool_use", fmt::format("messages.{}.{}", index, i),
                           "text follows the tool_use " + calls.back().id);
          }
          if (!first_text) message.content.append("\n\n");
          first_text = false;
          message.content.append(block.text);
          break;
        case Kind::thinking:
          if (message.reasoning) {
            *message.reasoning += "\n\n" + block.text;
          } else {
            message.reasoning = block.text;
          }
          break;
        case Kind::tool_use:
          if (!open_.insert(block.id).second) {
            return refused("duplicate_tool_use", place(index, i),
                           "the id " + block.id + " stands twice");
          }
          calls.push_back({block.id, block.name, block.input.text(JsonStyle::spaced_rust)});
          break;
        case Kind::tool_result:
          return refused("tool_result_in_assistant", place(index), "tool_result belongs to users");
        case Kind::server_tool:
          TRY(server_block());
          break;
        case Kind::tool_addition:
          return refused("tool_addition_in_assistant", place(index),
                         "tool_addition belongs to system messages");
        case Kind::document:
          if (!first_text) message.content.append("\n\n");
          first_text = false;
          message.content.append(document_text(block));
          break;
        default:
          if (v41())
            return refused("image_in_assistant", "messages",
                           place(index, i) + ": assistants show no images");
          if (!first_text) message.content.append("\n\n");
          first_text = false;
          message.content.append(kUnsupportedImage);
      }
    }
    calls_ = open_;
    if (!calls.empty()) message.tool_calls = std::move(calls);
    request_.conversation.messages.push_back(std::move(message));
    return {};
  }

  Accepted<void> close() {
    calls_.clear();
    if (open_.empty()) return {};
    std::string ids;
    for (const std::string& id : open_) ids += (ids.empty() ? "" : ", ") + id;
    return refused("missing_tool_results", "messages",
                   "every tool_use must have a tool_result at the start of the next message; "
                   "there is none for " +
                       ids);
  }

  const Tool* find_tool(std::string_view name) const {
    const auto found = std::find_if(tools_.begin(), tools_.end(),
                                    [&](const Tool& tool) { return tool.name == name; });
    return found == tools_.end() ? nullptr : &*found;
  }

  const MessagesBody& body_;
  const ConversionOptions& options_;
  const std::vector<Tool>& tools_;
  Request& request_;
  std::set<std::string> calls_, open_;  // of the assistant right before
};

// A tool of the client; null for one of the server that is dropped.
Accepted<std::optional<Tool>> accept_tool(const MessagesTool& source, size_t index,
                                          const ConversionOptions& options,
                                          DeepSeekVersion version) {
  const std::string field = fmt::format("tools[{}]", index);
  if (source.type) {
    const bool search = source.type->starts_with("web_search");
    if (search && options.messages_web_search == ConversionOptions::WebSearch::drop)
      return std::optional<Tool>();
    return refused("server_tool", field,
                   "the tool type " + *source.type + " is not supported, only those of clients");
  }
  TRY(accept_tool_name(source.name, field + ".name"));
  Tool tool;
  tool.name = source.name;
  tool.description = source.description;
  tool.parameters = source.input_schema;
  // V4 has no place for tools that come later: it shows them at once.
  tool.defer_loading = source.defer_loading == true && version == DeepSeekVersion::v41;
  return std::optional<Tool>(std::move(tool));
}

Accepted<std::vector<Tool>> accept_tools(const MessagesBody& body, const ConversionOptions& options,
                                         DeepSeekVersion version) {
  std::vector<Tool> tools;
  if (!body.tools) return tools;
  bool all_deferred = true;
  for (size_t i = 0; i < body.tools->size(); ++i) {
    std::optional<Tool> tool = TRY(accept_tool((*body.tools)[i], i, options, version));
    if (!tool) continue;
    all_deferred = all_deferred && (*body.tools)[i].defer_loading == true;
    tools.push_back(std::move(*tool));
  }
  if (version == DeepSeekVersion::v41 && !tools.empty() && all_deferred)
    return refused("all_tools_deferred", "tools", "defer_loading must not be set for all tools");
  return tools;
}

// A choice of a search tool that was dropped is none.
ChoiceAsked choice_of(const MessagesBody& body, const std::vector<Tool>& tools) {
  ChoiceAsked choice = body.tool_choice.value_or(ChoiceAsked());
  if (!choice.name || !body.tools) return choice;
  const auto kept = [&](const Tool& tool) { return tool.name == *choice.name; };
  const auto dropped = [&](const MessagesTool& tool) {
    return tool.type && tool.name == *choice.name;
  };
  if (std::none_of(tools.begin(), tools.end(), kept) &&
      std::any_of(body.tools->begin(), body.tools->end(), dropped))
    return {};
  return choice;
}

}  // namespace

Accepted<Request> accept_messages(const MessagesBody& body, const ConversionOptions& options) {
  Request request;
  request.version = TRY(accept_model(options, body.model));
  std::vector<Tool> tools = TRY(accept_tools(body, options, request.version));
  const ChoiceAsked choice = choice_of(body, tools);
  settle_thinking({body.thinking, body.effort}, options, request.conversation);
  TRY(MessagesReader(body, options, tools, request).run());
  if (choice.choice != ToolChoice::none) {
    for (const MessagesTool& tool : body.tools.value_or(std::vector<MessagesTool>())) {
      if (!tool.type && tool.input_schema.is_null())
        return refused("schema_invalid", tool.name, "the tool needs an input_schema");
    }
  }
  TRY(settle_tools(std::move(tools), choice, request));
  const std::vector<std::string> stops = body.stop_sequences.value_or(std::vector<std::string>());
  TRY(accept_stops(stops));
  TRY(accept_range(body.temperature, "temperature", 0, 2));
  TRY(accept_range(body.top_p, "top_p", 0, 1, false));
  const bool thinking = request.conversation.thinking;
  std::optional<uint64_t> max_tokens = body.max_tokens;
  if (max_tokens) max_tokens = std::min(*max_tokens, max_tokens_bound(thinking, options));
  TRY(accept_max_tokens(max_tokens, thinking, options));
  TRY(settle_reasoning(options, kNames, request.conversation));

  request.stream = body.stream == true;
  settle_sampling(body.temperature, body.top_p, request);
  request.inference.max_tokens = max_tokens;
  request.parsing.stop_sequences = stops;
  settle_answer(Json(), request);
  return request;
}

}  // namespace deepinfer::recipe
