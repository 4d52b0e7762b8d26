#pragma once

// AnswerWriter: the events of an answer in the words of one protocol, streamed and complete.
//
//   std::unique_ptr<AnswerWriter> writer = make_chat_writer(identity, request);
//   std::vector<ServerEvent> events;
//   for (const AnswerEvent& event : answer) writer->add(event, events);
//   writer->close(events);          // the end mark of Chat
//   std::string all = writer->complete();  // for clients that do not stream
//
// Event data and complete() are compact JSON. Source: specification of the recipe, sections 6 to 9.
// Threads: one writer, one thread.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "recipe/answer_stream.h"
#include "recipe/request.h"
#include "recipe/responses_request.h"

namespace deepinfer::recipe {

// One server-sent event. An empty name: the event has none.
struct ServerEvent {
  std::string name;
  std::string data;
  bool operator==(const ServerEvent&) const = default;
};

struct AnswerIdentity {
  std::string id;
  std::string model;
  int64_t created = 0;    // seconds
  std::string signature;  // Messages: of thinking blocks; empty: the id
};

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  // Events in the order of the answer, from start to end.
  virtual void add(const AnswerEvent& event, std::vector<ServerEvent>& events) = 0;
  // What closes the stream, also after an error.
  virtual void close(std::vector<ServerEvent>&) {}
  // The whole answer; requires the end event.
  virtual std::string complete() const = 0;
};

std::unique_ptr<AnswerWriter> make_chat_writer(AnswerIdentity identity, const Request& request);
std::unique_ptr<AnswerWriter> make_messages_writer(AnswerIdentity identity, const Request& request);
std::unique_ptr<AnswerWriter> make_responses_writer(AnswerIdentity identity, ResponsesEcho echo);

// [{"token", "logprob", "bytes", "top_logprobs"}, …]
void write_logprobs(JsonWriter& json, const std::vector<LogprobEntry>& entries);

}  // namespace deepinfer::recipe
