#include "llm/chat_session.h"

#include <algorithm>
#include <span>
#include <utility>

#include "llm/conversation_prompt.h"

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
  const text::Tokenizer tokenizer = TRY(llm_->tokenizer());
  const recipe::Layout layout = TRY(llm_->layout());
  const recipe::PromptPieces rendered = TRY(layout.render(conversation_));
  TokenHistory history = history_;
  Prompt prompt = settings_;
  prompt.choices = 1;
  prompt.best_of = 0;
  std::vector<int32_t> ids = TRY(history.encode(rendered, tokenizer));
  prompt.resume_points = resume_points(layout, conversation_, rendered, tokenizer, ids);
  prompt.input = std::move(ids);
  const std::vector<int32_t> ends = turn_end_ids(layout, tokenizer);
  if (!prompt.ignore_eos) prompt.stop_ids.insert(prompt.stop_ids.end(), ends.begin(), ends.end());
  std::vector<Answer> answers = TRY(llm_->generate(
      std::span<const Prompt>(&prompt, 1),
      [&](const Delta& delta) {
        if (!delta.text.empty()) on_text(delta.text);
      },
      cancel));
  Answer& only = answers.front();
  if (only.error) return *only.error;
  // What a stop string cut off is not in the text, so these ids are not the text's.
  std::span<const int32_t> sampled = only.ids;
  const bool stopped = only.finish == engine::FinishReason::stop;
  const auto& eos = llm_->model().config().eos_ids;
  const bool by_id = stopped && !sampled.empty() &&
                     (std::ranges::count(prompt.stop_ids, sampled.back()) > 0 ||
                      std::ranges::count(eos, static_cast<uint32_t>(sampled.back())) > 0);
  if (by_id) sampled = sampled.first(sampled.size() - 1);
  if (by_id || !stopped) history.append(only.text, sampled);
  history_ = std::move(history);
  conversation_.messages.push_back({recipe::Role::assistant, only.text});
  return std::move(only);
}

}  // namespace deepinfer::llm
