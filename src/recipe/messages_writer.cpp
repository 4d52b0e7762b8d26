// Answers of Anthropic Messages.

#include "recipe/answer_writer.h"

namespace deepinfer::recipe {
namespace {

std::string_view stop_word(AnswerFinish finish) {
  switch (finish) {
    case AnswerFinish::tool_calls:
      return "tool_use";
    case AnswerFinish::length:
      return "max_tokens";
    case AnswerFinish::content_filter:
      return "refusal";
    case AnswerFinish::stop_sequence:
      return "stop_sequence";
    case AnswerFinish::stop:
      break;
  }
  return "end_turn";
}

class MessagesWriter final : public AnswerWriter {
 public:
  MessagesWriter(AnswerIdentity identity, const Request& request)
      : identity_(std::move(identity)),
        reasons_(request.parsing.stage == ThinkingStage::reasoning_start ||
                 request.parsing.stage == ThinkingStage::reasoning_continuation) {}

  void add(const AnswerEvent& event, std::vector<ServerEvent>& events) override {
    switch (event.kind) {
      case AnswerEvent::Kind::start:
        start(event, events);
        if (reasons_) open({Kind::thinking, "", "", ""}, events);
        break;
      case AnswerEvent::Kind::reasoning:
        text(Kind::thinking, event.text, events);
        break;
      case AnswerEvent::Kind::content:
        text(Kind::text, event.text, events);
        break;
      case AnswerEvent::Kind::call:
        stop_block(events);
        open({Kind::call, "", event.call_id, event.text}, events);
        break;
      case AnswerEvent::Kind::arguments:
        text(Kind::call, event.text, events);
        break;
      case AnswerEvent::Kind::end:
        end_ = event;
        stop_block(events);
        finish(events);
    }
  }

  std::string complete() const override {
    std::string out;
    JsonWriter json(out);
    json.begin_object();
    json.member("id", identity_.id);
    json.member("type", "message");
    json.member("role", "assistant");
    json.member("model", identity_.model);
    json.key("content");
    json.begin_array();
    for (const Block& block : blocks_) write_whole(json, block);
    json.end_array();
    write_stop(json);
    json.key("usage");
    write_usage(json, end_.usage);
    json.end_object();
    return out;
  }

 private:
  enum class Kind { thinking, text, call };
  struct Block {
    Kind kind;
    std::string text;  // of a call: the arguments
    std::string id, name;
  };

  // Calls write(json) for the members behind `type`.
  template <class Write>
  static void send(std::string_view name, std::vector<ServerEvent>& events, Write write) {
    ServerEvent& event = events.emplace_back();
    event.name = name;
    JsonWriter json(event.data);
    json.begin_object();
    json.member("type", name);
    write(json);
    json.end_object();
  }

  static void write_usage(JsonWriter& json, const AnswerUsage& usage) {
    const uint64_t prompt = usage.prompt.prompt_tokens;
    const uint64_t cached = usage.prompt.cached_tokens;
    json.begin_object();
    json.member("input_tokens", prompt > cached ? prompt - cached : 0);
    json.member("cache_creation_input_tokens", 0);
    json.member("cache_read_input_tokens", cached);
    json.member("output_tokens", usage.completion_tokens);
    json.member("service_tier", "standard");
    json.end_object();
  }

  void start(const AnswerEvent& event, std::vector<ServerEvent>& events) const {
    send("message_start", events, [&](JsonWriter& json) {
      json.key("message");
      json.begin_object();
      json.member("id", identity_.id);
      json.member("type", "message");
      json.member("role", "assistant");
      json.member("model", identity_.model);
      json.key("content");
      json.begin_array();
      json.end_array();
      json.key("stop_reason");
      json.null();
      json.key("stop_sequence");
      json.null();
      json.key("usage");
      write_usage(json, {event.prompt, 0, {}});
      json.end_object();
    });
  }

  void open(Block block, std::vector<ServerEvent>& events) {
    send("content_block_start", events, [&](JsonWriter& json) {
      json.member("index", blocks_.size());
      json.key("content_block");
      json.begin_object();
      switch (block.kind) {
        case Kind::thinking:
          json.member("type", "thinking");
          json.member("thinking", "");
          json.member("signature", "");
          break;
        case Kind::text:
          json.member("type", "text");
          json.member("text", "");
          break;
        case Kind::call:
          json.member("type", "tool_use");
          json.member("id", block.id);
          json.member("name", block.name);
          json.key("input");
          json.raw("{}");
      }
      json.end_object();
    });
    if (blocks_.empty()) send("ping", events, [](JsonWriter&) {});
    blocks_.push_back(std::move(block));
    open_ = true;
  }

  void delta(std::string_view type, std::string_view key, std::string_view text,
             std::vector<ServerEvent>& events) const {
    send("content_block_delta", events, [&](JsonWriter& json) {
      json.member("index", blocks_.size() - 1);
      json.key("delta");
      json.begin_object();
      json.member("type", type);
      json.member(key, text);
      json.end_object();
    });
  }

  void text(Kind kind, const std::string& more, std::vector<ServerEvent>& events) {
    if (!open_ || blocks_.back().kind != kind) {
      stop_block(events);
      open({kind, "", "", ""}, events);
    }
    blocks_.back().text += more;
    switch (kind) {
      case Kind::thinking:
        return delta("thinking_delta", "thinking", more, events);
      case Kind::text:
        return delta("text_delta", "text", more, events);
      case Kind::call:
        return delta("input_json_delta", "partial_json", more, events);
    }
  }

  const std::string& signature() const {
    return identity_.signature.empty() ? identity_.id : identity_.signature;
  }

  void stop_block(std::vector<ServerEvent>& events) {
    if (!open_) return;
    open_ = false;
    if (blocks_.back().kind == Kind::thinking)
      delta("signature_delta", "signature", signature(), events);
    send("content_block_stop", events,
         [&](JsonWriter& json) { json.member("index", blocks_.size() - 1); });
  }

  void write_stop(JsonWriter& json) const {
    json.member("stop_reason", stop_word(end_.finish));
    json.key("stop_sequence");
    if (end_.stop_sequence) {
      json.value(*end_.stop_sequence);
    } else {
      json.null();
    }
  }

  void finish(std::vector<ServerEvent>& events) const {
    send("message_delta", events, [&](JsonWriter& json) {
      json.key("delta");
      json.begin_object();
      write_stop(json);
      json.end_object();
      json.key("usage");
      write_usage(json, end_.usage);
    });
    send("message_stop", events, [](JsonWriter&) {});
  }

  void write_whole(JsonWriter& json, const Block& block) const {
    json.begin_object();
    switch (block.kind) {
      case Kind::thinking:
        json.member("type", "thinking");
        json.member("thinking", block.text);
        json.member("signature", signature());
        break;
      case Kind::text:
        json.member("type", "text");
        json.member("text", block.text);
        break;
      case Kind::call: {
        json.member("type", "tool_use");
        json.member("id", block.id);
        json.member("name", block.name);
        // Arguments that do not parse are shown as none.
        const Result<Json> input = Json::parse(block.text, "input");
        json.key("input");
        json.raw(input.ok() ? input.value().text(JsonStyle::compact) : "{}");
      }
    }
    json.end_object();
  }

  const AnswerIdentity identity_;
  const bool reasons_;
  std::vector<Block> blocks_;
  bool open_ = false;  // the last block
  AnswerEvent end_;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_messages_writer(AnswerIdentity identity,
                                                   const Request& request) {
  return std::make_unique<MessagesWriter>(std::move(identity), request);
}

}  // namespace deepinfer::recipe
