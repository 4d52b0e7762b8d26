#include "engine/ledger.h"

#include <algorithm>
#include <cmath>

namespace deepinfer::engine {
namespace {

constexpr size_t kKeptTexts = 64;
constexpr size_t kHead = 4;  // ids

int32_t word_at(const Request& request, size_t position) {
  for (const PromptImage& image : request.images) {
    if (position >= image.start && position - image.start < image.embeddings.size()) {
      return static_cast<int32_t>(*image.embeddings[position - image.start]) |
             SimulatedText::kImageBit;
    }
  }
  return request.prompt[position];
}

std::vector<int32_t> head_of(const std::vector<int32_t>& ids) {
  return {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(std::min(kHead, ids.size()))};
}

bool ends_in(std::span<const int32_t> output, const std::vector<int32_t>& sequence) {
  return output.size() >= sequence.size() &&
         std::equal(sequence.begin(), sequence.end(),
                    output.end() - static_cast<std::ptrdiff_t>(sequence.size()));
}

size_t output_limit(const Request& request, size_t context) {
  return std::min(request.max_tokens, context - request.prompt.size());
}

}  // namespace

void Ledger::fail(const Event& event, const std::string& what) const {
  if (!failure_.empty()) return;
  failure_ = "request " + std::to_string(event.request) + " choice " +
             std::to_string(event.choice) + ": " + what;
}

void Ledger::accepted(const Request& request, size_t step) {
  Account& account = live_[request.id];
  account.request = request;
  account.live = request.choices;
  account.added = step;
  account.added_ns = clock_.now_ns();
  const int32_t last = request.prompt.back();
  account.poisoned = last == SimulatedText::kFails || last == SimulatedText::kNan;
  account.approximate = request.resume == Resume::replay;
  Choice choice;
  choice.step = step;
  choice.ids = request.prompt;
  for (size_t i = 0; i < request.prompt.size(); ++i) choice.text.append(word_at(request, i));
  account.choices.assign(request.choices, choice);
  ++seen_.requests;
}

void Ledger::cancelled(uint64_t request, size_t step) {
  const auto found = live_.find(request);
  if (found == live_.end()) return;
  found->second.cancel_step = std::min(found->second.cancel_step, step);
}

bool Ledger::timed_out(const Account& account) const {
  return account.request.timeout_ms > 0 &&
         static_cast<double>(clock_.now_ns() - account.added_ns) >=
             account.request.timeout_ms * 1e6;
}

void Ledger::take(const Event& event, size_t step) {
  const auto found = live_.find(event.request);
  if (found == live_.end()) return fail(event, "an event of nobody, or after the end");
  Account& account = found->second;
  if (event.choice >= account.choices.size()) return fail(event, "no such choice");
  Choice& choice = account.choices[event.choice];
  if (choice.ended) return fail(event, "an event after the end");
  if (!event.has_token && event.prompt_scores.empty() && event.finish == FinishReason::none) {
    return fail(event, "an event that says nothing");
  }
  take_scores(account, event);
  if (event.has_token) {
    take_token(account, choice, event);
    choice.step = step;
  }
  const FinishReason expected = expected_end(account, choice);
  if (event.finish != FinishReason::none) {
    take_end(account, choice, event, expected);
    choice.ended = true;
    if (--account.live > 0) return;
    for (const Choice& one : account.choices) {
      heads_.insert({account.request.salt, head_of(one.ids)});
    }
    if (!account.poisoned && account.request.images.empty()) {
      ended_texts_[event.request] = account.choices[0].ids;
      if (ended_texts_.size() > kKeptTexts) ended_texts_.erase(ended_texts_.begin());
    }
    live_.erase(found);
  } else if (event.has_token && expected != FinishReason::none) {
    fail(event, "the token ends it by " + std::string(finish_reason_name(expected)) +
                    ", the event does not say so");
  }
}

void Ledger::take_scores(Account& account, const Event& event) {
  if (event.prompt_scores.empty()) return;
  const Request& request = account.request;
  if (!request.want_prompt_logprobs || event.choice != 0) return fail(event, "unwanted scores");
  if (event.prompt_first != account.scored) {
    return fail(event, "scores from " + std::to_string(event.prompt_first) + ", wanted " +
                           std::to_string(account.scored));
  }
  if (account.scored + event.prompt_scores.size() > request.prompt.size()) {
    return fail(event, "more scores than ids");
  }
  SimulatedText text;
  for (size_t i = 0; i < account.scored; ++i) text.append(word_at(request, i));
  logits_.resize(SimulatedText::kVocab);
  for (const sampling::Sampled& score : event.prompt_scores) {
    text.logits(logits_);
    const int32_t id = request.prompt[account.scored];
    const auto right =
        sampling::score(kernels::Isa::ref, logits_, id, request.sampling.top_logprobs, workspace_);
    if (!right.ok() || score.id != id || score.logprob != right.value().logprob ||
        score.top != right.value().top) {
      return fail(event, "the score of prompt id " + std::to_string(account.scored) + " is wrong");
    }
    text.append(word_at(request, account.scored++));
  }
}

sampling::SampleRow Ledger::row_of(const Account& account, const Choice& choice) const {
  const Request& request = account.request;
  const size_t output = choice.ids.size() - request.prompt.size();
  logits_.resize(SimulatedText::kVocab);
  choice.text.logits(logits_);
  sampling::SampleRow row;
  row.logits = logits_;
  row.position = choice.ids.size() - 1;
  row.seen = choice.ids;
  if (output < request.min_tokens) row.banned = banned_;
  if (output < request.forced_ids.size()) row.forced = request.forced_ids[output];
  return row;
}

void Ledger::take_token(Account& account, Choice& choice, const Event& event) {
  const Request& request = account.request;
  const size_t output = choice.ids.size() - request.prompt.size();
  ++seen_.tokens;
  choice.drafted_tokens += event.drafted ? 1 : 0;
  choice.logprob_sum += static_cast<double>(event.token.logprob);
  if (event.choice == 0 && request.want_prompt_logprobs &&
      account.scored != request.prompt.size()) {
    fail(event, "a token before the scores of the prompt");
  }
  if (event.drafted && request.drafting == Drafting::none) fail(event, "a draft nobody wanted");
  if (!account.approximate) {
    banned_ = request.stop_ids;
    if (!request.ignore_eos) banned_.push_back(SimulatedText::kEos);
    sampling::Parameters parameters = request.sampling;
    parameters.seed += event.choice;
    const auto right = sampling::sample(row_of(account, choice), parameters, workspace_);
    if (account.poisoned) {
      fail(event, "a token of a request that cannot have one");
    } else if (!right.ok()) {
      fail(event, "a token where the sampler says " + right.error().text());
    } else if (right.value().id != event.token.id) {
      fail(event, "output " + std::to_string(output) + " is " + std::to_string(event.token.id) +
                      ", alone it is " + std::to_string(right.value().id));
    } else if (right.value().logprob != event.token.logprob ||
               right.value().top != event.token.top) {
      fail(event, "the log-probability of output " + std::to_string(output) + " is " +
                      std::to_string(event.token.logprob) + ", alone it is " +
                      std::to_string(right.value().logprob));
    }
  }
  choice.ids.push_back(event.token.id);
  choice.text.append(event.token.id);
}

FinishReason Ledger::expected_end(const Account& account, const Choice& choice) const {
  const Request& request = account.request;
  const std::span<const int32_t> output = std::span(choice.ids).subspan(request.prompt.size());
  // A forced token may be a stop before min_tokens, and stops nothing then.
  if (!output.empty() && output.size() >= request.min_tokens) {
    const int32_t last = output.back();
    if (!request.ignore_eos && last == SimulatedText::kEos) return FinishReason::stop;
    if (std::ranges::count(request.stop_ids, last) > 0) return FinishReason::stop;
    for (const std::vector<int32_t>& sequence : request.stop_sequences) {
      if (ends_in(output, sequence)) return FinishReason::stop;
    }
  }
  const bool full = output.size() >= output_limit(request, context_);
  return full ? FinishReason::length : FinishReason::none;
}

void Ledger::take_end(Account& account, Choice& choice, const Event& event, FinishReason expected) {
  ++seen_.choices;
  if (event.finish == FinishReason::cancelled) {
    ++seen_.cancelled;
    if (account.cancel_step == SIZE_MAX) fail(event, "cancelled by nobody");
  } else if (event.finish == FinishReason::error) {
    check_error(account, event);
  } else if (event.finish != expected) {
    fail(event, "ended by " + std::string(finish_reason_name(event.finish)) + " instead of " +
                    std::string(finish_reason_name(expected)));
  } else if (account.poisoned && output_limit(account.request, context_) > 0) {
    fail(event, "ended well, and its prompt fails");
  } else if (event.choice == 0 && account.request.want_prompt_logprobs &&
             account.scored != account.request.prompt.size()) {
    fail(event, "ended before the scores of its prompt");
  }
  check_stats(account, choice, event);
}

void Ledger::check_error(const Account& account, const Event& event) {
  ++seen_.errors;
  if (event.error.empty()) return fail(event, "an error without a text");
  if (account.poisoned) return;
  if (timed_out(account)) {
    ++seen_.timeouts;
    return;
  }
  if (event.error.find("injected") != std::string::npos && injected_ > 0) return;
  fail(event, "failed: " + event.error);
}

void Ledger::check_stats(const Account& account, const Choice& choice, const Event& event) {
  const RequestStats& stats = event.stats;
  const Request& request = account.request;
  const size_t output = choice.ids.size() - request.prompt.size();
  if (stats.prompt_tokens != request.prompt.size()) fail(event, "stats: prompt tokens");
  if (stats.completion_tokens != output) fail(event, "stats: completion tokens");
  // Others compute the last token of their prompt.
  const size_t others = stats.resume == "fork" ? 0 : 1;
  if (stats.cached_tokens + others > request.prompt.size()) fail(event, "stats: cached tokens");
  if (stats.accepted > stats.drafted) fail(event, "stats: more accepted than drafted");
  if (stats.accepted != choice.drafted_tokens) {
    fail(event, "stats: " + std::to_string(stats.accepted) + " accepted, " +
                    std::to_string(choice.drafted_tokens) + " seen");
  }
  if (request.sampling.want_logprob && std::abs(stats.logprob_sum - choice.logprob_sum) > 1e-3) {
    fail(event, "stats: sum of log-probabilities");
  }
  if (event.choice == 0 && stats.cached_tokens > 0) {
    if (request.resume == Resume::none) fail(event, "reused what it did not want");
    const std::vector<int32_t> head = head_of(request.prompt);
    if (stats.cached_tokens >= kHead && !heads_.contains({request.salt, head}) &&
        stats.preemptions == 0) {
      // Somebody alive may have computed it.
      const bool alive = std::ranges::any_of(live_, [&](const auto& other) {
        return other.first != event.request && other.second.request.salt == request.salt &&
               std::ranges::any_of(other.second.choices,
                                   [&](const Choice& one) { return head_of(one.ids) == head; });
      });
      if (!alive) fail(event, "reused what its tenant never computed");
    }
  }
  seen_.prompt_tokens += stats.prompt_tokens;
  seen_.cached_tokens += stats.cached_tokens;
  seen_.drafted += stats.drafted;
  seen_.accepted += stats.accepted;
  seen_.preemptions += stats.preemptions;
  const auto name = std::ranges::find(kResumeNames, stats.resume);
  if (name == kResumeNames.end()) return fail(event, "stats: resumed by \"" + stats.resume + "\"");
  ++seen_.resumes[name - kResumeNames.begin()];
}

void Ledger::Seen::add(const Seen& other) {
  for (uint64_t Seen::* field :
       {&Seen::requests, &Seen::choices, &Seen::tokens, &Seen::cached_tokens, &Seen::prompt_tokens,
        &Seen::drafted, &Seen::accepted, &Seen::preemptions, &Seen::cancelled, &Seen::errors,
        &Seen::timeouts}) {
    this->*field += other.*field;
  }
  most_steps = std::max(most_steps, other.most_steps);
  for (size_t i = 0; i < kResumeNames.size(); ++i) resumes[i] += other.resumes[i];
}

std::string Ledger::Seen::text() const {
  std::string text;
  const auto say = [&](uint64_t count, std::string_view what) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + std::string(what);
  };
  say(requests, "requests");
  say(choices, "choices");
  say(tokens, "tokens");
  say(prompt_tokens, "tokens of prompts");
  say(cached_tokens, "of them cached");
  say(drafted, "drafted");
  say(accepted, "accepted");
  say(preemptions, "preemptions");
  say(cancelled, "cancelled");
  say(errors, "errors");
  say(timeouts, "of them time limits");
  for (size_t i = 0; i < kResumeNames.size(); ++i) say(resumes[i], kResumeNames[i]);
  say(most_steps, "steps without a token at most");
  return text;
}

void Ledger::step_ended(size_t step) {
  for (auto& [id, account] : live_) {
    Event event;
    event.request = id;
    if (timed_out(account)) account.late_step = std::min(account.late_step, step);
    if (account.cancel_step != SIZE_MAX && step >= account.cancel_step + kStepsToEnd) {
      fail(event, "lives after its cancellation at step " + std::to_string(account.cancel_step));
    }
    if (account.late_step != SIZE_MAX && step > account.late_step + kStepsToEnd) {
      fail(event, "lives after its time limit");
    }
    for (uint32_t i = 0; i < account.choices.size(); ++i) {
      if (account.choices[i].ended) continue;
      const size_t still = step - std::max(account.choices[i].step, account.added);
      seen_.most_steps = std::max<uint64_t>(seen_.most_steps, still);
      event.choice = i;
      if (still > kMostSteps) fail(event, "no token for " + std::to_string(still) + " steps");
    }
  }
}

void Ledger::finished() const {
  for (const auto& [id, account] : live_) {
    Event event;
    event.request = id;
    fail(event, "never ended");
  }
}

std::vector<int32_t> Ledger::text_of(uint64_t request) const {
  if (const auto ended = ended_texts_.find(request); ended != ended_texts_.end()) {
    return ended->second;
  }
  const auto found = live_.find(request);
  if (found == live_.end() || found->second.poisoned || !found->second.request.images.empty()) {
    return {};
  }
  return found->second.choices[0].ids;
}

}  // namespace deepinfer::engine
