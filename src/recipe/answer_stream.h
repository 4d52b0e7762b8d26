#pragma once

// AnswerStream: chunks of the engine to events of an answer, the same for all protocols.
//
//   AnswerStream stream(request.parsing, request.conversation.thinking, tokenizer,
//                       random_call_suffix);
//   std::vector<AnswerEvent> events;
//   TRY(stream.push(ReadyChunk{prompt_tokens, cached}, events));
//   TRY(stream.push(TokenChunk{ids}, events)); …
//   TRY(stream.finish(events));
//
// Token ids of a chunk wait until their text ends in a whole character or a control token follows;
// what still waits at the end is lost: give one id a chunk to lose the least. Control tokens are
// recognised by their ids, never in text that only looks like them.
//
// The first event is start, the last one end. After an error nothing more comes. Threads: one at a
// time.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "recipe/output_parser.h"
#include "recipe/request.h"
#include "text/tokenizer.h"

namespace deepinfer::recipe {

struct PromptUsage {
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
};

struct AnswerUsage {
  PromptUsage prompt;
  uint64_t completion_tokens = 0;
  // Tokens of the reasoning text encoded anew; absent without a tokenizer.
  std::optional<uint64_t> reasoning_tokens;
};

// Log-probability of a token that was taken, and of the best ones at its place.
struct TokenLogprob {
  float logprob = 0;
  std::vector<std::pair<int32_t, float>> top;
};

struct ReadyChunk {
  PromptUsage usage;
  std::optional<std::string> fingerprint;
};
struct TextChunk {
  std::string text;
  uint64_t tokens = 1;
};
struct TokenChunk {
  std::vector<int32_t> ids;
  std::optional<std::vector<TokenLogprob>> logprobs;  // as many as ids
};
enum class EngineFinish { stop, length, content_filter };
using EngineChunk = std::variant<ReadyChunk, TextChunk, TokenChunk, EngineFinish>;

enum class AnswerFinish { stop, stop_sequence, tool_calls, length, content_filter };

// One entry of log-probabilities as clients see it.
struct LogprobEntry {
  std::string token;  // UTF-8, or "\xNN" for each byte when the token is none
  float logprob = 0;
  std::string bytes;
  std::vector<LogprobEntry> top;
};
// Shared by the events that one chunk was split into.
using Logprobs = std::shared_ptr<const std::vector<LogprobEntry>>;

struct AnswerEvent {
  enum class Kind { start, content, reasoning, call, arguments, end };
  Kind kind = Kind::start;
  std::string text;                          // content, reasoning, arguments; call: the name
  std::string call_id;                       // call
  Logprobs logprobs;                         // content, reasoning; may be null
  PromptUsage prompt;                        // start
  std::optional<std::string> fingerprint;    // start
  AnswerFinish finish = AnswerFinish::stop;  // end
  std::optional<std::string> stop_sequence;  // end
  AnswerUsage usage;                         // end
};

// "AbC…12": 20 letters and digits, then 4 digits, from the system's randomness.
std::string random_call_suffix();

class AnswerStream {
 public:
  using Suffix = std::function<std::string()>;

  // thinking: the prompt asked for it, so an empty reasoning marks the ids of calls.
  AnswerStream(const ParsingOptions& options, bool thinking,
               std::optional<text::Tokenizer> tokenizer, Suffix call_suffix);

  // Errors: unsupported when ids come without a tokenizer, invalid when there are more or fewer
  // log-probabilities than ids.
  Result<void> push(const EngineChunk& chunk, std::vector<AnswerEvent>& events);
  // The engine said no more. Does nothing when the stream has ended.
  void finish(std::vector<AnswerEvent>& events);
  bool ended() const { return ended_; }

 private:
  void start(const ReadyChunk& ready, std::vector<AnswerEvent>& events);
  void push_text(std::string_view text, Spelling spelling, Logprobs logprobs,
                 std::vector<AnswerEvent>& events);
  Result<void> push_tokens(const TokenChunk& chunk, std::vector<AnswerEvent>& events);
  void release_tokens(Spelling spelling, std::vector<AnswerEvent>& events);
  Logprobs entries_of_waiting() const;
  LogprobEntry entry_of(int32_t id, float logprob) const;
  void translate(std::vector<AnswerEvent>& events);
  std::string next_call_id();
  void end(std::optional<EngineFinish> finish, std::vector<AnswerEvent>& events);

  OutputParser parser_;
  const bool thinking_;
  const std::optional<text::Tokenizer> tokenizer_;
  const Suffix call_suffix_;

  bool started_ = false;
  bool ended_ = false;
  AnswerUsage usage_;
  std::string reasoning_;
  size_t calls_ = 0;
  std::optional<std::string> stop_sequence_;

  std::vector<int32_t> waiting_;                // ids without text so far
  std::vector<TokenLogprob> waiting_logprobs_;  // as many, or none
  std::string waiting_bytes_;
  std::deque<std::pair<uint64_t, Logprobs>> chunks_;  // those of the parser's chunks, by number
  uint64_t pushed_ = 0;                               // chunks given to the parser
  std::vector<OutputEvent> parsed_;
};

}  // namespace deepinfer::recipe
