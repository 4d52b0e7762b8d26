#pragma once

// ChatSession: a conversation that remembers. An answer that failed leaves the conversation as it
// was; one that was interrupted stays, as far as it came.
//
// What was sampled is kept as ids (token_history.h), so the next turn computes the new question
// only; a retry and an edited conversation take up the work where they leave what is known. Where a
// layout drops the thinking of earlier answers, that point is the last question.
//
// Ownership: refers to the Llm, which must outlive it. Threads: one at a time.

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "llm/llm.h"
#include "llm/token_history.h"

namespace deepinfer::llm {

class ChatSession {
 public:
  using OnText = std::function<void(std::string_view)>;

  // `settings` gives sampling and limits of every answer; its input is not used.
  ChatSession(Llm& llm, Prompt settings) : llm_(&llm), settings_(std::move(settings)) {}

  Result<Answer> ask(std::string text, const OnText& on_text, const std::atomic<bool>* cancel);
  // The last question once more; invalid when there is none. Greedy sampling gives the same words
  // again, so a retry draws with the next seed.
  Result<Answer> retry(const OnText& on_text, const std::atomic<bool>* cancel);

  const recipe::Conversation& conversation() const { return conversation_; }
  // Another conversation; what it has in common with this one is not computed again.
  void replace(recipe::Conversation conversation) { conversation_ = std::move(conversation); }

 private:
  Result<Answer> answer(const OnText& on_text, const std::atomic<bool>* cancel);

  Llm* llm_;
  Prompt settings_;
  recipe::Conversation conversation_;
  TokenHistory history_;
};

}  // namespace deepinfer::llm
