#include "recipe/line_answer.h"

#include "recipe/answer_writer.h"
#include "recipe/common_form.h"

namespace deepinfer::recipe {
namespace {

std::string star() { return "*"; }

std::vector<EngineChunk> text_chunks(const std::string& text, size_t size) {
  std::vector<EngineChunk> chunks;
  size_t begin = 0, count = 0;
  for (size_t at = 0; at <= text.size(); ++at) {
    const bool starts = at == text.size() || (static_cast<uint8_t>(text[at]) & 0xC0) != 0x80;
    if (!starts) continue;
    if (at > begin && (at == text.size() || (size > 0 && count == size))) {
      chunks.push_back(TextChunk{text.substr(begin, at - begin)});
      begin = at;
      count = 0;
    }
    ++count;
  }
  return chunks;
}

Result<std::vector<int32_t>> ids_of(const JsonValue& value) {
  std::vector<int32_t> ids;
  for (const JsonValue& id : TRY(value.array())) ids.push_back(TRY(id.as<int32_t>()));
  return ids;
}

Result<EngineFinish> finish_of(const JsonValue& value) {
  const std::string word = TRY(value.as<std::string>());
  if (word == "stop") return EngineFinish::stop;
  if (word == "length") return EngineFinish::length;
  if (word == "content_filter") return EngineFinish::content_filter;
  return value.error("\"" + word + "\" is none of stop, length, content_filter");
}

Result<std::vector<TokenLogprob>> logprobs_of(const JsonValue& value) {
  std::vector<TokenLogprob> logprobs;
  for (const JsonValue& one : TRY(value.array())) {
    const auto pair = TRY(one.array());
    if (pair.size() != 2) return one.error("expected a number and a list");
    TokenLogprob& logprob = logprobs.emplace_back();
    logprob.logprob = TRY(pair[0].as<float>());
    for (const JsonValue& top : TRY(pair[1].array())) {
      const auto entry = TRY(top.array());
      if (entry.size() != 2) return top.error("expected an id and a number");
      logprob.top.emplace_back(TRY(entry[0].as<int32_t>()), TRY(entry[1].as<float>()));
    }
  }
  return logprobs;
}

Result<EngineChunk> chunk_of(const JsonValue& value) {
  if (const JsonValue* ready = value.find("ready")) {
    ReadyChunk chunk;
    chunk.usage.prompt_tokens = TRY(ready->get<uint64_t>("prompt_tokens"));
    chunk.usage.cached_tokens = TRY(ready->get<uint64_t>("prompt_cache_hit_tokens"));
    if (ready->find("system_fingerprint") != nullptr)
      chunk.fingerprint = TRY(ready->get<std::string>("system_fingerprint"));
    return EngineChunk(std::move(chunk));
  }
  if (value.find("text") != nullptr) {
    return EngineChunk(TextChunk{TRY(value.get<std::string>("text")),
                                 TRY(value.get_or<uint64_t>("token_count", 1))});
  }
  if (const JsonValue* tokens = value.find("tokens")) {
    TokenChunk chunk;
    chunk.ids = TRY(ids_of(*tokens));
    if (const JsonValue* logprobs = value.find("logprobs"); logprobs && !logprobs->is_null())
      chunk.logprobs = TRY(logprobs_of(*logprobs));
    return EngineChunk(std::move(chunk));
  }
  const JsonValue* finish = TRY(value.member("finish"));
  return EngineChunk(TRY(finish_of(*finish)));
}

std::string_view finish_word(AnswerFinish finish, bool messages) {
  switch (finish) {
    case AnswerFinish::tool_calls:
      return messages ? "tool_use" : "tool_calls";
    case AnswerFinish::length:
      return messages ? "max_tokens" : "length";
    case AnswerFinish::content_filter:
      return messages ? "refusal" : "content_filter";
    case AnswerFinish::stop_sequence:
      return messages ? "stop_sequence" : "stop";
    case AnswerFinish::stop:
      break;
  }
  return messages ? "end_turn" : "stop";
}

std::unique_ptr<AnswerWriter> writer_of(Protocol protocol, AnswerIdentity identity,
                                        const Request& request, const ResponsesEcho& echo) {
  switch (protocol) {
    case Protocol::chat:
      return make_chat_writer(std::move(identity), request);
    case Protocol::messages:
      return make_messages_writer(std::move(identity), request);
    case Protocol::responses:
      break;
  }
  return make_responses_writer(std::move(identity), echo);
}

// Data that is JSON as JSON, else (the end mark) as a string.
Result<Json> sse_json(const std::vector<ServerEvent>& events) {
  Json out = Json::array();
  for (const ServerEvent& event : events) {
    Json one = Json::object();
    if (!event.name.empty()) one.set("event", event.name);
    one.set("data",
            event.data.starts_with('{') ? TRY(Json::parse(event.data, "event")) : Json(event.data));
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

Result<std::vector<AnswerEvent>> parse_line(const JsonValue& line, size_t size,
                                            const std::optional<text::Tokenizer>& tokenizer) {
  ParsingOptions options;
  if (const JsonValue* given = line.find("options")) options = TRY(parsing_from_json(*given));
  std::vector<EngineChunk> chunks;
  if (const JsonValue* tokens = line.find("tokens")) {
    const std::vector<int32_t> ids = TRY(ids_of(*tokens));
    const size_t step = size > 0 ? size : std::max<size_t>(ids.size(), 1);
    for (size_t at = 0; at < ids.size(); at += step) {
      const auto begin = ids.begin() + static_cast<ptrdiff_t>(at);
      const auto end = ids.begin() + static_cast<ptrdiff_t>(std::min(at + step, ids.size()));
      chunks.push_back(TokenChunk{{begin, end}, {}});
    }
  } else {
    chunks = text_chunks(TRY(line.get<std::string>("text")), size);
  }
  if (const JsonValue* finish = line.find("finish"); finish && !finish->is_null())
    chunks.push_back(TRY(finish_of(*finish)));
  AnswerStream stream(options, options.stage != ThinkingStage::none, tokenizer, star);
  std::vector<AnswerEvent> events;
  for (const EngineChunk& chunk : chunks) TRY(stream.push(chunk, events));
  stream.finish(events);
  return events;
}

Json parsed_message(const std::vector<AnswerEvent>& events) {
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;
  for (const AnswerEvent& event : events) {
    if (event.kind == AnswerEvent::Kind::content) content += event.text;
    if (event.kind == AnswerEvent::Kind::reasoning) reasoning += event.text;
    if (event.kind == AnswerEvent::Kind::call) calls.emplace_back(event.text, "");
    if (event.kind == AnswerEvent::Kind::arguments) calls.back().second += event.text;
  }
  Json list = Json::array();
  for (const auto& [name, arguments] : calls) {
    Json call = Json::object();
    call.set("name", name);
    call.set("arguments", arguments);
    list.push_back(std::move(call));
  }
  const AnswerEvent& end = events.back();
  Json out = Json::object();
  out.set("content", content);
  out.set("reasoning", reasoning);
  out.set("tool_calls", std::move(list));
  out.set("finish_reason", finish_word(end.finish, false));
  out.set("stop_reason", finish_word(end.finish, true));
  out.set("stop_sequence", end.stop_sequence ? Json(*end.stop_sequence) : Json());
  return out;
}

Json parsed_deltas(const std::vector<AnswerEvent>& events) {
  Json out = Json::array();
  const auto add = [&](const char* kind, const std::string& text) {
    out.push_back(Json::Array{Json(kind), Json(text)});
  };
  for (const AnswerEvent& event : events) {
    if (event.kind == AnswerEvent::Kind::content) add("content", event.text);
    if (event.kind == AnswerEvent::Kind::reasoning) add("reasoning", event.text);
    if (event.kind == AnswerEvent::Kind::call) add("call", event.text);
    if (event.kind == AnswerEvent::Kind::arguments) add("args", event.text);
  }
  return out;
}

Result<Json> answer_line(const JsonValue& line, Protocol protocol, const Request& request,
                         const ResponsesEcho& echo,
                         const std::optional<text::Tokenizer>& tokenizer) {
  AnswerIdentity identity{.id = "ID", .model = "MODEL", .created = 0, .signature = {}};
  if (const JsonValue* extra = line.find("extra"))
    identity.signature = TRY(extra->get_or<std::string>("signature", ""));
  const auto writer = writer_of(protocol, std::move(identity), request, echo);
  AnswerStream stream(request.parsing, request.conversation.thinking, tokenizer, star);
  std::vector<AnswerEvent> answer;
  std::string_view failure;
  const JsonValue* backend = TRY(line.member("backend"));
  for (const JsonValue& one : TRY(backend->array())) {
    const Result<void> pushed = stream.push(TRY(chunk_of(one)), answer);
    if (pushed.ok()) continue;
    failure = pushed.error().kind == ErrorKind::invalid ? "logprobs_count" : "no_tokenizer";
    break;
  }
  stream.finish(answer);
  std::vector<ServerEvent> events;
  for (const AnswerEvent& event : answer) writer->add(event, events);
  writer->close(events);
  Json out = Json::object();
  out.set("sse", TRY(sse_json(events)));
  if (failure.empty()) {
    out.set("complete", TRY(Json::parse(writer->complete(), "answer")));
  } else {
    out.set("error", failure);
  }
  return out;
}

}  // namespace deepinfer::recipe
