// Answers of Chat Completions.

#include <algorithm>

#include "recipe/answer_writer.h"

namespace deepinfer::recipe {
namespace {

void write_entry(JsonWriter& json, const LogprobEntry& entry, bool with_top) {
  json.begin_object();
  json.member("token", entry.token);
  json.member("logprob", entry.logprob);
  json.key("bytes");
  json.begin_array();
  for (const char byte : entry.bytes) json.value(static_cast<int>(static_cast<uint8_t>(byte)));
  json.end_array();
  if (with_top) {
    json.key("top_logprobs");
    json.begin_array();
    for (const LogprobEntry& one : entry.top) write_entry(json, one, false);
    json.end_array();
  }
  json.end_object();
}

std::string_view finish_word(AnswerFinish finish) {
  switch (finish) {
    case AnswerFinish::tool_calls:
      return "tool_calls";
    case AnswerFinish::length:
      return "length";
    case AnswerFinish::content_filter:
      return "content_filter";
    case AnswerFinish::stop:
    case AnswerFinish::stop_sequence:
      break;
  }
  return "stop";
}

class ChatWriter final : public AnswerWriter {
 public:
  ChatWriter(AnswerIdentity identity, const Request& request)
      : identity_(std::move(identity)),
        thinking_(request.conversation.thinking),
        stage_(request.parsing.stage),
        null_usage_(request.null_usage) {}

  void add(const AnswerEvent& event, std::vector<ServerEvent>& events) override {
    using Kind = AnswerEvent::Kind;
    if (event.kind == Kind::start) fingerprint_ = event.fingerprint;
    std::string& data = events.emplace_back().data;
    JsonWriter json(data);
    json.begin_object();
    json.member("id", identity_.id);
    json.member("object", "chat.completion.chunk");
    json.member("created", identity_.created);
    json.member("model", identity_.model);
    write_fingerprint(json);
    json.key("choices");
    json.begin_array();
    json.begin_object();
    json.member("index", 0);
    json.key("delta");
    write_delta(json, event);
    json.key("logprobs");
    write_event_logprobs(json, event);
    json.key("finish_reason");
    if (event.kind == Kind::end) {
      json.value(finish_word(event.finish));
    } else {
      json.null();
    }
    json.end_object();
    json.end_array();
    if (event.kind == Kind::end) {
      json.key("usage");
      write_usage(json, event.usage);
    } else if (null_usage_) {
      json.key("usage");
      json.null();
    }
    json.end_object();
    keep(event);
  }

  void close(std::vector<ServerEvent>& events) override { events.push_back({"", "[DONE]"}); }

  std::string complete() const override {
    std::string out;
    JsonWriter json(out);
    json.begin_object();
    json.member("id", identity_.id);
    json.member("object", "chat.completion");
    json.member("created", identity_.created);
    json.member("model", identity_.model);
    json.key("choices");
    json.begin_array();
    json.begin_object();
    json.member("index", 0);
    json.key("message");
    write_message(json);
    json.key("logprobs");
    write_all_logprobs(json);
    json.member("finish_reason", finish_word(end_.finish));
    json.end_object();
    json.end_array();
    json.key("usage");
    write_usage(json, end_.usage);
    write_fingerprint(json);
    json.end_object();
    return out;
  }

 private:
  struct Call {
    std::string id, name, arguments;
  };

  bool reasons() const {
    return stage_ == ThinkingStage::reasoning_start ||
           stage_ == ThinkingStage::reasoning_continuation;
  }

  void write_fingerprint(JsonWriter& json) const {
    json.key("system_fingerprint");
    if (fingerprint_) {
      json.value(*fingerprint_);
    } else {
      json.null();
    }
  }

  void write_delta(JsonWriter& json, const AnswerEvent& event) const {
    json.begin_object();
    switch (event.kind) {
      case AnswerEvent::Kind::start:
        json.member("role", "assistant");
        write_first(json);
        break;
      case AnswerEvent::Kind::reasoning:
        json.key("content");
        json.null();
        json.member("reasoning_content", event.text);
        break;
      case AnswerEvent::Kind::content:
      case AnswerEvent::Kind::end:
        json.member("content", event.text);
        if (thinking_) {
          json.key("reasoning_content");
          json.null();
        }
        break;
      case AnswerEvent::Kind::call:
      case AnswerEvent::Kind::arguments:
        write_call_delta(json, event);
    }
    json.end_object();
  }

  void write_first(JsonWriter& json) const {
    const bool reasons =
        stage_ == ThinkingStage::reasoning_start || stage_ == ThinkingStage::reasoning_continuation;
    json.key("content");
    if (reasons) {
      json.null();
      json.member("reasoning_content", "");
      return;
    }
    json.value("");
    if (!thinking_) return;
    json.key("reasoning_content");
    json.null();
  }

  void write_call_delta(JsonWriter& json, const AnswerEvent& event) const {
    const bool opens = event.kind == AnswerEvent::Kind::call;
    json.key("tool_calls");
    json.begin_array();
    json.begin_object();
    json.member("index", opens ? calls_.size() : calls_.size() - 1);
    if (opens) {
      json.member("id", event.call_id);
      json.member("type", "function");
    }
    json.key("function");
    json.begin_object();
    if (opens) json.member("name", event.text);
    json.member("arguments", opens ? std::string_view() : std::string_view(event.text));
    json.end_object();
    json.end_object();
    json.end_array();
  }

  static void write_event_logprobs(JsonWriter& json, const AnswerEvent& event) {
    if (!event.logprobs) return json.null();
    json.begin_object();
    json.key(event.kind == AnswerEvent::Kind::reasoning ? "reasoning_content" : "content");
    write_logprobs(json, *event.logprobs);
    json.end_object();
  }

  void write_usage(JsonWriter& json, const AnswerUsage& usage) const {
    const uint64_t prompt = usage.prompt.prompt_tokens;
    const uint64_t cached = usage.prompt.cached_tokens;
    json.begin_object();
    json.member("prompt_tokens", prompt);
    json.member("completion_tokens", usage.completion_tokens);
    json.member("total_tokens", prompt + usage.completion_tokens);
    json.key("prompt_tokens_details");
    json.begin_object();
    json.member("cached_tokens", cached);
    json.end_object();
    if (thinking_ && usage.reasoning_tokens) {
      json.key("completion_tokens_details");
      json.begin_object();
      json.member("reasoning_tokens", *usage.reasoning_tokens);
      json.end_object();
    }
    json.member("prompt_cache_hit_tokens", cached);
    json.member("prompt_cache_miss_tokens", prompt > cached ? prompt - cached : 0);
    json.end_object();
  }

  void keep(const AnswerEvent& event) {
    switch (event.kind) {
      case AnswerEvent::Kind::start:
        if (reasons()) reasoning_.emplace();
        break;
      case AnswerEvent::Kind::reasoning:
        reasoning_ = reasoning_.value_or("") + event.text;
        append(event.logprobs, reasoning_logprobs_);
        break;
      case AnswerEvent::Kind::content:
        content_ += event.text;
        append(event.logprobs, content_logprobs_);
        break;
      case AnswerEvent::Kind::call:
        calls_.push_back({event.call_id, event.text, ""});
        break;
      case AnswerEvent::Kind::arguments:
        calls_.back().arguments += event.text;
        break;
      case AnswerEvent::Kind::end:
        end_ = event;
    }
  }

  static void append(const Logprobs& more, std::vector<LogprobEntry>& all) {
    if (more) all.insert(all.end(), more->begin(), more->end());
  }

  void write_message(JsonWriter& json) const {
    json.begin_object();
    json.member("role", "assistant");
    json.member("content", content_);
    if (reasoning_) json.member("reasoning_content", *reasoning_);
    if (!calls_.empty()) {
      json.key("tool_calls");
      json.begin_array();
      for (size_t i = 0; i < calls_.size(); ++i) {
        json.begin_object();
        json.member("index", i);
        json.member("id", calls_[i].id);
        json.member("type", "function");
        json.key("function");
        json.begin_object();
        json.member("name", calls_[i].name);
        json.member("arguments", calls_[i].arguments);
        json.end_object();
        json.end_object();
      }
      json.end_array();
    }
    json.end_object();
  }

  void write_all_logprobs(JsonWriter& json) const {
    if (content_logprobs_.empty() && reasoning_logprobs_.empty()) return json.null();
    json.begin_object();
    if (!content_logprobs_.empty()) {
      json.key("content");
      write_logprobs(json, content_logprobs_);
    }
    if (!reasoning_logprobs_.empty()) {
      json.key("reasoning_content");
      write_logprobs(json, reasoning_logprobs_);
    }
    json.end_object();
  }

  const AnswerIdentity identity_;
  const bool thinking_;
  const ThinkingStage stage_;
  const bool null_usage_;
  std::optional<std::string> fingerprint_, reasoning_;
  std::string content_;
  std::vector<Call> calls_;
  std::vector<LogprobEntry> content_logprobs_, reasoning_logprobs_;
  AnswerEvent end_;
};

}  // namespace

void write_logprobs(JsonWriter& json, const std::vector<LogprobEntry>& entries) {
  json.begin_array();
  for (const LogprobEntry& entry : entries) write_entry(json, entry, true);
  json.end_array();
}

std::unique_ptr<AnswerWriter> make_chat_writer(AnswerIdentity identity, const Request& request) {
  return std::make_unique<ChatWriter>(std::move(identity), request);
}

}  // namespace deepinfer::recipe
