#include "recipe/responses_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "recipe/image_source.h"

namespace deepinfer::recipe {
namespace {

using Kind = ResponsesItem::Kind;

class ItemReader {
 public:
  ItemReader(Request& request, std::vector<Tool>& found)
      : messages_(request.conversation.messages),
        v41_(request.version == DeepSeekVersion::v41),
        found_(found) {}

  Accepted<void> run(const std::vector<ResponsesItem>& items) {
    for (size_t i = 0; i < items.size(); ++i) TRY(item(items[i], i));
    TRY(expect_closed());
    flush_reasoning();
    return {};
  }

 private:
  Accepted<void> item(const ResponsesItem& item, size_t index) {
    switch (item.kind) {
      case Kind::message:
        return message(item, index);
      case Kind::reasoning:
        return reasoning(item);
      case Kind::call:
      case Kind::custom_call:
        return call(item, index);
      case Kind::search_call:
        return v41_ ? call(item, index) : Accepted<void>();
      case Kind::output:
        return output(item, index);
      case Kind::search_output:
        return search_output(item);
      case Kind::skipped:
        return {};
    }
    return {};
  }

  Message& add(Role role) {
    Message& message = messages_.emplace_back();
    message.role = role;
    return message;
  }

  // Calls without an answer are followed by outputs only.
  Accepted<void> expect_closed() const {
    if (open_.empty()) return {};
    std::string ids;
    for (const std::string& id : open_) ids += (ids.empty() ? "" : ", ") + id;
    return refused("missing_tool_results", "input", "there is no output for the call " + ids);
  }

  // Reasoning that no answer followed stands alone.
  void flush_reasoning() {
    if (!reasoning_) return;
    add(Role::assistant).reasoning = std::move(reasoning_);
    reasoning_.reset();
  }

  Accepted<void> message(const ResponsesItem& item, size_t index) {
    TRY(expect_closed());
    Content content = TRY(content_of(item.content, item.role, index));
    if (item.role != Role::assistant) {
      flush_reasoning();
      assistant_open_ = false;
      const bool as_user = item.role == Role::user || (item.developer && !v41_);
      add(as_user ? Role::user : Role::system).content = std::move(content);
      return {};
    }
    if (assistant_open_ && !reasoning_) {
      Content& merged = messages_.back().content;
      if (!merged.empty() && !content.empty()) merged.append("\n\n");
      merged.append_content(std::move(content));
      return {};
    }
    Message& message = add(Role::assistant);
    message.content = std::move(content);
    message.reasoning = std::move(reasoning_);
    reasoning_.reset();
    assistant_open_ = true;
    return {};
  }

  Accepted<void> reasoning(const ResponsesItem& item) {
    TRY(expect_closed());
    if (item.reasoning.empty()) return {};
    // An answer without text is still thinking.
    if (assistant_open_ && messages_.back().content.empty()) {
      reasoning_ = std::move(messages_.back().reasoning);
      messages_.pop_back();
    }
    assistant_open_ = false;
    std::string text;
    for (const std::string& one : item.reasoning)
      text += (&one != item.reasoning.data() ? "\n" : "") + one;
    reasoning_ = reasoning_ ? *reasoning_ + "\n" + text : text;
    return {};
  }

  Accepted<void> call(const ResponsesItem& item, size_t index) {
    if (item.call_id.empty())
      return refused("empty_string", fmt::format("input[{}].call_id", index), "is empty");
    if (!ids_.insert(item.call_id).second) {
      return refused("duplicate_tool_call_id", "input",
                     "the call_id " + item.call_id + " stands twice");
    }
    if (open_.empty()) {
      if (!assistant_open_ || reasoning_) {
        Message& message = add(Role::assistant);
        message.reasoning = std::move(reasoning_);
        reasoning_.reset();
      }
      caller_ = messages_.size() - 1;
      messages_[caller_].tool_calls.emplace();
      assistant_open_ = false;
    }
    open_.insert(item.call_id);
    std::string name = item.name;
    if (item.name_space) name = joined_tool_name(*item.name_space, item.name, v41_);
    messages_[caller_].tool_calls->push_back({item.call_id, std::move(name), item.arguments});
    return {};
  }

  Accepted<void> answer(const std::string& id) {
    if (open_.erase(id) == 1) return {};
    if (ids_.contains(id))
      return refused("duplicate_tool_result", "input", "the call " + id + " was answered before");
    return refused("unexpected_tool_call_id", "input", "no call before has the call_id " + id);
  }

  Accepted<void> output(const ResponsesItem& item, size_t index) {
    Message result;
    result.role = Role::tool;
    if (!item.has_call_id) {
      TRY(expect_closed());
      result.content = TRY(content_of(item.content, Role::tool, index));
      messages_.push_back(std::move(result));
      assistant_open_ = false;
      return {};
    }
    TRY(answer(item.call_id));
    result.content = TRY(content_of(item.content, Role::tool, index));
    result.tool_call_id = item.call_id;
    results_[item.call_id].push_back(std::move(result));
    close_group();
    return {};
  }

  Accepted<void> search_output(const ResponsesItem& item) {
    if (!v41_) return {};
    TRY(answer(item.call_id));
    Json list = Json::array();
    std::vector<Tool> tools;
    for (const ResponsesTool& tool : item.tools) {
      if (tool.kind == ResponsesTool::Kind::function) {
        list.push_back(echo_of(tool));
        tools.push_back(tool_of(tool));
      }
      for (const ResponsesTool& member : tool.members) {
        list.push_back(echo_of(member));
        tools.push_back(tool_of(member));
        tools.back().name = joined_tool_name(tool.name, member.name, v41_);
      }
    }
    Message result;
    result.role = Role::tool;
    result.content = list.text(JsonStyle::compact);
    result.tool_call_id = item.call_id;
    std::vector<Message>& results = results_[item.call_id];
    results.push_back(std::move(result));
    if (!tools.empty()) {
      for (Tool& tool : tools) {
        tool.defer_loading = true;
        found_.push_back(tool);
      }
      Message& system = results.emplace_back();
      system.role = Role::system;
      system.tools = std::move(tools);
    }
    close_group();
    return {};
  }

  // All calls are answered: they and their results stand in the order of their ids.
  void close_group() {
    if (!open_.empty()) return;
    std::vector<ToolCall>& calls = *messages_[caller_].tool_calls;
    std::sort(calls.begin(), calls.end(),
              [](const ToolCall& a, const ToolCall& b) { return a.id < b.id; });
    for (auto& [id, results] : results_) {
      for (Message& result : results) messages_.push_back(std::move(result));
    }
    results_.clear();
  }

  Accepted<Content> content_of(const ResponsesContent& source, Role role, size_t index) const {
    if (const auto* text = std::get_if<std::string>(&source)) return Content(*text);
    const auto& parts = std::get<std::vector<ResponsesPart>>(source);
    Content content;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i > 0) content.append("\n\n");
      switch (parts[i].kind) {
        case ResponsesPart::Kind::text:
          content.append(parts[i].text);
          break;
        case ResponsesPart::Kind::file:
          content.append("[Unsupported Document]");
          break;
        case ResponsesPart::Kind::image:
          TRY(append_image(parts[i], role, index, i, content));
      }
    }
    return content;
  }

  Accepted<void> append_image(const ResponsesPart& part, Role role, size_t index, size_t at,
                              Content& out) const {
    if (!v41_) {
      out.append(kUnsupportedImage);
      return {};
    }
    const std::string item = fmt::format("input[{}]", index);
    if (role == Role::assistant)
      return refused("image_in_assistant", item, "assistants show no images");
    const std::string field = fmt::format("{}.content[{}]", item, at);
    if (part.image_url && part.file_id)
      return refused("file_both", field, "an image has either image_url or file_id");
    if (part.file_id)
      return refused("file_id", field, "a file_id is not supported, send image_url");
    if (!part.image_url) return refused("image_empty", field, "an image needs image_url");
    out.append_image(TRY(
        accept_image_url(*part.image_url, part.detail.value_or(ImageDetail::high), item, item)));
    return {};
  }

  std::vector<Message>& messages_;
  const bool v41_;
  std::vector<Tool>& found_;
  std::optional<std::string> reasoning_;  // for the next answer
  bool assistant_open_ = false;           // the last message takes more text and calls
  size_t caller_ = 0;                     // the message that made the open calls
  std::set<std::string> ids_, open_;
  std::map<std::string, std::vector<Message>> results_;  // of the open group, by id
};

}  // namespace

Accepted<void> read_items(const ResponsesBody& body, Request& request, std::vector<Tool>& found) {
  if (!body.input && body.instructions.value_or("").empty())
    return refused("no_input", "input", "either input or instructions is needed");
  if (body.instructions && !body.instructions->empty()) {
    Message& system = request.conversation.messages.emplace_back();
    system.role = Role::system;
    system.content = *body.instructions;
  }
  if (!body.input) return {};
  if (const auto* text = std::get_if<std::string>(&*body.input)) {
    request.conversation.messages.push_back({Role::user, *text});
    return {};
  }
  const auto& items = std::get<std::vector<ResponsesItem>>(*body.input);
  if (items.empty()) return refused("empty_array", "input", "is empty");
  return ItemReader(request, found).run(items);
}

}  // namespace deepinfer::recipe
