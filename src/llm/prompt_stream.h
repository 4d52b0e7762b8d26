#pragma once

// PromptStream: the events of one request to the text and answers of one prompt. Text leaves as
// soon as its characters are complete and cannot become a stop string. generate() and LlmService
// use the same.
//
// With best_of > choices the text waits until all are ranked, then leaves at once.
//
// Threads: one at a time.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "llm/prompt.h"
#include "llm/stop_matcher.h"
#include "text/stream_decoder.h"

namespace deepinfer::llm {

class PromptStream {
 public:
  using OnDelta = std::function<void(const Delta&)>;  // may be empty

  // index: of the Deltas. place: names the model in errors. tokenizer: null gives no text.
  PromptStream(size_t index, std::string place, const Prompt& prompt,
               const text::Tokenizer* tokenizer);

  enum class Then { go_on, cancel };
  // cancel: nothing that the request can still compute matters; said once.
  Then take(const engine::Event& event, const OnDelta& on_delta);
  // Ends it with an error, if it has not ended; ErrorKind::cancelled is no error of the answer.
  void fail(Error error, const OnDelta& on_delta);

  bool done() const { return done_; }
  bool begun() const { return tokens_ > 0 || done_; }  // the first token has come
  size_t tokens() const { return tokens_; }            // of all choices
  // Complete once done().
  const Answer& answer() const { return choices_.front().answer; }
  Answer take_answer() { return std::move(choices_.front().answer); }

 private:
  struct Choice {
    Answer answer;
    std::optional<text::StreamDecoder> decoder;
    StopMatcher matcher{{}};
    bool ended = false;

    bool settled() const { return ended || matcher.stopped(); }
  };
  bool ranks() const { return choices_.size() > wanted_; }
  void say(uint32_t choice, std::string_view text, const OnDelta& on_delta);
  void take_token(uint32_t number, const engine::Event& event, const OnDelta& on_delta);
  void end_choice(uint32_t number, const engine::Event& event, const OnDelta& on_delta);
  void complete(const OnDelta& on_delta);

  size_t index_;
  std::string place_;
  size_t wanted_;
  bool want_tops_;
  std::vector<Choice> choices_;
  size_t tokens_ = 0;
  bool cancelled_ = false;
  bool done_ = false;
};

}  // namespace deepinfer::llm
