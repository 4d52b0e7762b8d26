#include "llm/prompt_stream.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace deepinfer::llm {

using engine::FinishReason;

PromptStream::PromptStream(size_t index, std::string place, const Prompt& prompt,
                           const text::Tokenizer* tokenizer)
    : index_(index),
      place_(std::move(place)),
      wanted_(std::max<size_t>(prompt.choices, 1)),
      want_tops_(prompt.sampling.top_logprobs > 0),
      choices_(std::max<size_t>(wanted_, prompt.best_of)) {
  if (!prompt.want_text || tokenizer == nullptr) return;
  for (Choice& choice : choices_) {
    choice.decoder.emplace(*tokenizer, text::SkipSpecial::yes);
    choice.matcher = StopMatcher(prompt.stop);
  }
}

void PromptStream::say(uint32_t choice, std::string_view text, const OnDelta& on_delta) {
  if (on_delta && !text.empty()) on_delta({.index = index_, .choice = choice, .text = text});
}

PromptStream::Then PromptStream::take(const engine::Event& event, const OnDelta& on_delta) {
  if (done_) return Then::go_on;
  Choice& choice = choices_[event.choice];
  if (!event.prompt_scores.empty()) {
    std::vector<sampling::Sampled>& scores = choice.answer.prompt_logprobs;
    const size_t end = event.prompt_first - 1 + event.prompt_scores.size();
    if (scores.size() < end) scores.resize(end);
    std::copy(event.prompt_scores.begin(), event.prompt_scores.end(),
              scores.begin() + static_cast<ptrdiff_t>(event.prompt_first - 1));
  }
  if (event.has_token) take_token(event.choice, event, on_delta);
  if (event.finish != FinishReason::none) end_choice(event.choice, event, on_delta);
  if (std::ranges::all_of(choices_, [](const Choice& one) { return one.ended; })) {
    complete(on_delta);
  } else if (!cancelled_ && std::ranges::all_of(choices_, &Choice::settled)) {
    cancelled_ = true;
    return Then::cancel;
  }
  return Then::go_on;
}

void PromptStream::take_token(uint32_t number, const engine::Event& event,
                              const OnDelta& on_delta) {
  ++tokens_;
  Choice& choice = choices_[number];
  if (choice.matcher.stopped()) return;
  Answer& answer = choice.answer;
  answer.ids.push_back(event.token.id);
  answer.logprobs.push_back(event.token.logprob);
  if (want_tops_) answer.top_logprobs.push_back(event.token.top);
  if (!choice.decoder) return;
  const std::string text = choice.matcher.push(choice.decoder->push(event.token.id));
  answer.text += text;
  if (!ranks()) say(number, text, on_delta);
}

void PromptStream::end_choice(uint32_t number, const engine::Event& event,
                              const OnDelta& on_delta) {
  Choice& choice = choices_[number];
  Answer& answer = choice.answer;
  choice.ended = true;
  answer.stats = event.stats;
  answer.stats.completion_tokens = answer.ids.size();
  answer.finish = event.finish;
  std::string rest;
  if (choice.matcher.stopped()) {
    // The engine was told to cancel, or went on unseen; what ended the answer is its text.
    answer.finish = FinishReason::stop;
  } else if (choice.decoder) {
    rest = choice.matcher.push(choice.decoder->flush());
    rest += choice.matcher.flush();
    if (choice.matcher.stopped()) answer.finish = FinishReason::stop;
  }
  if (answer.finish == FinishReason::error)
    answer.error = Error{ErrorKind::internal, place_, event.error, ""};
  answer.text += rest;
  if (!ranks()) say(number, rest, on_delta);
}

// Errors last; of equals the lower seed first.
void PromptStream::complete(const OnDelta& on_delta) {
  done_ = true;
  if (ranks()) {
    std::vector<size_t> order(choices_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, {}, [this](size_t number) {
      const Answer& answer = choices_[number].answer;
      return std::tuple(answer.error.has_value(), -answer.mean_logprob(), number);
    });
    std::vector<Choice> ranked;
    for (size_t i = 0; i < wanted_; ++i) ranked.push_back(std::move(choices_[order[i]]));
    choices_ = std::move(ranked);
    for (uint32_t i = 0; i < wanted_; ++i) say(i, choices_[i].answer.text, on_delta);
  }
  Answer& first = choices_.front().answer;
  for (size_t i = 1; i < wanted_; ++i) first.others.push_back(std::move(choices_[i].answer));
  choices_.resize(1);
  if (on_delta) on_delta({.index = index_, .text = {}, .answer = &first});
}

void PromptStream::fail(Error error, const OnDelta& on_delta) {
  if (done_) return;
  done_ = true;
  choices_.resize(1);
  Answer& answer = choices_.front().answer;
  if (error.kind == ErrorKind::cancelled) {
    answer.finish = FinishReason::cancelled;
  } else {
    answer.finish = FinishReason::error;
    answer.error = std::move(error);
  }
  if (on_delta) on_delta({.index = index_, .text = {}, .answer = &answer});
}

}  // namespace deepinfer::llm
