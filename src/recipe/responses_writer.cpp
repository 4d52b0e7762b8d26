// Answers of Responses.

#include <fmt/format.h>

#include "recipe/answer_writer.h"
#include "recipe/custom_input.h"

namespace deepinfer::recipe {
namespace {

constexpr std::string_view kSearchName = "tool_search";

enum class ItemKind { reasoning, message, call, custom, search };

struct Item {
  ItemKind kind = ItemKind::message;
  std::string id, call_id, name, name_space;
  std::string text;  // of calls: the arguments; of custom calls: the input
  std::string_view status = "in_progress";
  std::string_view phase = "final_answer";
  std::vector<LogprobEntry> logprobs;
  CustomInput input;
};

std::string_view id_prefix(ItemKind kind) {
  switch (kind) {
    case ItemKind::reasoning:
      return "rs";
    case ItemKind::message:
      return "msg";
    case ItemKind::call:
      return "fc";
    case ItemKind::custom:
      return "ctc";
    case ItemKind::search:
      return "tsc";
  }
  return {};
}

void write_part(JsonWriter& json, const Item& item, bool empty) {
  json.begin_object();
  const std::string_view text = empty ? std::string_view() : std::string_view(item.text);
  if (item.kind == ItemKind::reasoning) {
    json.member("type", "reasoning_text");
  } else {
    json.member("type", "output_text");
    json.key("annotations");
    json.raw("[]");
    json.key("logprobs");
    write_logprobs(json, empty ? std::vector<LogprobEntry>() : item.logprobs);
  }
  json.member("text", text);
  json.end_object();
}

void write_parts(JsonWriter& json, const Item& item) {
  json.key("content");
  json.begin_array();
  if (item.status != "in_progress") write_part(json, item, false);
  json.end_array();
}

void write_item(JsonWriter& json, const Item& item) {
  const bool started = item.status == "in_progress";
  json.begin_object();
  switch (item.kind) {
    case ItemKind::reasoning:
      json.member("type", "reasoning");
      break;
    case ItemKind::message:
      json.member("type", "message");
      break;
    case ItemKind::call:
      json.member("type", "function_call");
      break;
    case ItemKind::custom:
      json.member("type", "custom_tool_call");
      break;
    case ItemKind::search:
      json.member("type", "tool_search_call");
  }
  json.member("id", item.id);
  json.member("status", item.status);
  if (item.kind == ItemKind::reasoning) {
    write_parts(json, item);
    json.key("summary");
    json.raw("[]");
    // "rs_ID_0" is the item, "ID-0" stands for its content.
    const std::string_view rest = std::string_view(item.id).substr(3);
    const size_t line = rest.rfind('_');
    json.member("encrypted_content",
                fmt::format("{}-{}", rest.substr(0, line), rest.substr(line + 1)));
  } else if (item.kind == ItemKind::message) {
    json.member("role", "assistant");
    json.member("phase", item.phase);
    write_parts(json, item);
  } else {
    json.member("call_id", item.call_id);
    if (item.kind == ItemKind::search) {
      json.member("execution", "client");
      const bool complete = item.status == "completed";
      const Result<Json> arguments = Json::parse(complete ? item.text : "{}", "arguments");
      json.key("arguments");
      json.raw(arguments.ok() ? arguments.value().text(JsonStyle::compact) : "{}");
    } else {
      json.member("name", item.name);
      if (!item.name_space.empty()) json.member("namespace", item.name_space);
      json.member(item.kind == ItemKind::custom ? "input" : "arguments",
                  started ? std::string_view() : std::string_view(item.text));
    }
  }
  json.end_object();
}

class ResponsesWriter final : public AnswerWriter {
 public:
  ResponsesWriter(AnswerIdentity identity, ResponsesEcho echo)
      : identity_(std::move(identity)), echo_(std::move(echo)) {}

  void add(const AnswerEvent& event, std::vector<ServerEvent>& events) override {
    switch (event.kind) {
      case AnswerEvent::Kind::start:
        for (const char* name : {"response.created", "response.in_progress"}) {
          send(name, events, [&](JsonWriter& json) {
            json.key("response");
            write_response(json, "in_progress");
            sequence(json);
          });
        }
        break;
      case AnswerEvent::Kind::reasoning:
        text(ItemKind::reasoning, event, events);
        break;
      case AnswerEvent::Kind::content:
        text(ItemKind::message, event, events);
        break;
      case AnswerEvent::Kind::call:
        if (open_ && items_.back().kind == ItemKind::message) items_.back().phase = "commentary";
        close_item("completed", events);
        open_item(call_item(event), events);
        break;
      case AnswerEvent::Kind::arguments:
        arguments(event.text, events);
        break;
      case AnswerEvent::Kind::end:
        end_ = event;
        finish(events);
    }
  }

  std::string complete() const override {
    std::string out;
    JsonWriter json(out);
    write_response(json, status());
    return out;
  }

 private:
  // Calls write(json) for the members behind `type`.
  template <class Write>
  void send(std::string_view name, std::vector<ServerEvent>& events, Write write) {
    ServerEvent& event = events.emplace_back();
    event.name = name;
    JsonWriter json(event.data);
    json.begin_object();
    json.member("type", name);
    write(json);
    json.end_object();
  }

  void sequence(JsonWriter& json) { json.member("sequence_number", sequence_++); }
  size_t index() const { return items_.size() - 1; }

  Item call_item(const AnswerEvent& event) const {
    Item item;
    item.call_id = event.call_id;
    item.name = event.text;
    item.kind = ItemKind::call;
    const auto found = echo_.namespaces.find(event.text);
    if (found != echo_.namespaces.end()) {
      item.name_space = found->second.first;
      item.name = found->second.second;
    } else if (echo_.custom_tools.contains(event.text)) {
      item.kind = ItemKind::custom;
    } else if (echo_.tool_search && event.text == kSearchName) {
      item.kind = ItemKind::search;
    }
    return item;
  }

  void open_item(Item item, std::vector<ServerEvent>& events) {
    item.id = fmt::format("{}_{}_{}", id_prefix(item.kind), identity_.id, items_.size());
    items_.push_back(std::move(item));
    open_ = true;
    const Item& opened = items_.back();
    send("response.output_item.added", events, [&](JsonWriter& json) {
      json.key("item");
      write_item(json, opened);
      json.member("output_index", index());
      sequence(json);
    });
    if (opened.kind != ItemKind::reasoning && opened.kind != ItemKind::message) return;
    send_part("response.content_part.added", true, events);
  }

  void send_part(std::string_view name, bool empty, std::vector<ServerEvent>& events) {
    send(name, events, [&](JsonWriter& json) {
      json.member("content_index", 0);
      json.member("item_id", items_.back().id);
      json.member("output_index", index());
      json.key("part");
      write_part(json, items_.back(), empty);
      sequence(json);
    });
  }

  void text(ItemKind kind, const AnswerEvent& event, std::vector<ServerEvent>& events) {
    if (!open_ || items_.back().kind != kind) {
      close_item("completed", events);
      Item item;
      item.kind = kind;
      open_item(std::move(item), events);
    }
    Item& item = items_.back();
    item.text += event.text;
    const bool message = kind == ItemKind::message;
    if (message && event.logprobs)
      item.logprobs.insert(item.logprobs.end(), event.logprobs->begin(), event.logprobs->end());
    send(message ? "response.output_text.delta" : "response.reasoning_text.delta", events,
         [&](JsonWriter& json) {
           json.member("content_index", 0);
           json.member("delta", event.text);
           json.member("item_id", item.id);
           if (message) {
             json.key("logprobs");
             write_logprobs(json, event.logprobs ? *event.logprobs : std::vector<LogprobEntry>());
           }
           json.member("output_index", index());
           sequence(json);
         });
  }

  void arguments(const std::string& more, std::vector<ServerEvent>& events) {
    Item& item = items_.back();
    const bool custom = item.kind == ItemKind::custom;
    const std::string delta = custom ? item.input.push(more) : more;
    item.text += delta;
    if (item.kind == ItemKind::search || (custom && delta.empty())) return;
    send(
        custom ? "response.custom_tool_call_input.delta" : "response.function_call_arguments.delta",
        events, [&](JsonWriter& json) {
          json.member("delta", delta);
          json.member("item_id", item.id);
          json.member("output_index", index());
          sequence(json);
        });
  }

  void close_item(std::string_view status, std::vector<ServerEvent>& events) {
    if (!open_) return;
    open_ = false;
    Item& item = items_.back();
    if (item.kind == ItemKind::reasoning || item.kind == ItemKind::message) {
      close_text(item, events);
    } else if (item.kind != ItemKind::search) {
      const bool custom = item.kind == ItemKind::custom;
      send(
          custom ? "response.custom_tool_call_input.done" : "response.function_call_arguments.done",
          events, [&](JsonWriter& json) {
            json.member(custom ? "input" : "arguments", item.text);
            json.member("item_id", item.id);
            json.member("output_index", index());
            sequence(json);
          });
    }
    item.status = status;
    // Arguments of a search are a value: without one the item is not complete.
    if (item.kind == ItemKind::search && !Json::parse(item.text, "arguments").ok())
      item.status = "incomplete";
    send("response.output_item.done", events, [&](JsonWriter& json) {
      json.key("item");
      write_item(json, item);
      json.member("output_index", index());
      sequence(json);
    });
  }

  void close_text(const Item& item, std::vector<ServerEvent>& events) {
    const bool message = item.kind == ItemKind::message;
    send(message ? "response.output_text.done" : "response.reasoning_text.done", events,
         [&](JsonWriter& json) {
           json.member("content_index", 0);
           json.member("item_id", item.id);
           if (message) {
             json.key("logprobs");
             write_logprobs(json, item.logprobs);
           }
           json.member("output_index", index());
           sequence(json);
           json.member("text", item.text);
         });
    send_part("response.content_part.done", false, events);
  }

  bool cut_short() const {
    return end_.finish == AnswerFinish::length || end_.finish == AnswerFinish::content_filter;
  }
  std::string_view status() const { return cut_short() ? "incomplete" : "completed"; }

  void finish(std::vector<ServerEvent>& events) {
    close_item(status(), events);
    send(cut_short() ? "response.incomplete" : "response.completed", events, [&](JsonWriter& json) {
      json.key("response");
      write_response(json, status());
      sequence(json);
    });
  }

  void echo(JsonWriter& json, std::string_view key) const {
    json.key(key);
    const Json* value = echo_.members.find(key);
    json.raw(value != nullptr ? value->text(JsonStyle::compact) : "null");
  }

  // Members with a value that never changes are JSON text.
  void write_response(JsonWriter& json, std::string_view status) const {
    const auto constant = [&](std::string_view key, std::string_view value) {
      json.key(key);
      json.raw(value);
    };
    const bool over = status != "in_progress";
    json.begin_object();
    json.member("id", identity_.id);
    json.member("object", "response");
    json.member("created_at", identity_.created);
    json.member("status", status);
    constant("background", "false");
    json.key("completed_at");
    if (over) {
      json.value(identity_.created);
    } else {
      json.null();
    }
    constant("content_filters", "null");
    constant("error", "null");
    constant("frequency_penalty", "0.0");
    json.key("incomplete_details");
    if (status == "incomplete") {
      json.begin_object();
      json.member("reason",
                  end_.finish == AnswerFinish::length ? "max_output_tokens" : "content_filter");
      json.end_object();
    } else {
      json.null();
    }
    echo(json, "instructions");
    echo(json, "max_output_tokens");
    constant("max_tool_calls", "null");
    json.member("model", identity_.model);
    constant("moderation", "null");
    json.key("output");
    json.begin_array();
    if (over) {
      for (const Item& item : items_) write_item(json, item);
    }
    json.end_array();
    constant("parallel_tool_calls", "true");
    constant("presence_penalty", "0.0");
    for (const char* key : {"previous_response_id", "prompt_cache_key", "prompt_cache_retention"})
      constant(key, "null");
    echo(json, "reasoning");
    constant("safety_identifier", "null");
    json.member("service_tier", "default");
    constant("store", "false");
    for (const char* key : {"temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p"})
      echo(json, key);
    json.member("truncation", "disabled");
    json.key("usage");
    if (over) {
      write_usage(json);
    } else {
      json.null();
    }
    echo(json, "user");
    constant("metadata", "{}");
    json.end_object();
  }

  void write_usage(JsonWriter& json) const {
    const AnswerUsage& usage = end_.usage;
    json.begin_object();
    json.member("input_tokens", usage.prompt.prompt_tokens);
    json.key("input_tokens_details");
    json.begin_object();
    json.member("cached_tokens", usage.prompt.cached_tokens);
    json.end_object();
    json.member("output_tokens", usage.completion_tokens);
    json.key("output_tokens_details");
    json.begin_object();
    json.member("reasoning_tokens", usage.reasoning_tokens.value_or(0));
    json.end_object();
    json.member("total_tokens", usage.prompt.prompt_tokens + usage.completion_tokens);
    json.end_object();
  }

  const AnswerIdentity identity_;
  const ResponsesEcho echo_;
  std::vector<Item> items_;
  bool open_ = false;  // the last item
  uint64_t sequence_ = 0;
  AnswerEvent end_;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_responses_writer(AnswerIdentity identity, ResponsesEcho echo) {
  return std::make_unique<ResponsesWriter>(std::move(identity), std::move(echo));
}

}  // namespace deepinfer::recipe
