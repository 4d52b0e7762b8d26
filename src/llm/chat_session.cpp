#include "llm/chat_session.h"

#include <utility>

namespace deepinfer::llm {

Result<Answer> ChatSession::ask(std::string text, const OnText& on_text,
                                const std::atomic<bool>* cancel) {
  const size_t before = conversation_.messages.size();
  conversation_.messages.push_back({recipe::Role::user, std::move(text)});
  Result<Answer> result = answer(on_text, cancel);
  if (!result.ok()) conversation_.messages.resize(before);
  return result;
}

Result<Answer> ChatSession::retry(const OnText& on_text, const std::atomic<bool>* cancel) {
  recipe::Conversation saved = conversation_;
  auto& messages = conversation_.messages;
  while (!messages.empty() && messages.back().role == recipe::Role::assistant) messages.pop_back();
  if (messages.empty() || messages.back().role != recipe::Role::user) {
    conversation_ = std::move(saved);
    return Error::invalid("/retry", "there is no question yet");
  }
  ++settings_.sampling.seed;
  Result<Answer> result = answer(on_text, cancel);
  if (!result.ok()) conversation_ = std::move(saved);
  return result;
}

Result<Answer> ChatSession::answer(const OnText& on_text, const std::atomic<bool>* cancel) {
  Prompt prompt = settings_;
  prompt.input = conversation_;
  std::vector<Answer> answers = TRY(llm_->generate(
      std::span<const Prompt>(&prompt, 1),
      [&](const Delta& delta) {
        if (!delta.text.empty()) on_text(delta.text);
      },
      cancel));
  Answer& only = answers.front();
  if (only.error) return *only.error;
  conversation_.messages.push_back({recipe::Role::assistant, only.text});
  return std::move(only);
}

}  // namespace deepinfer::llm
