#include "engine/request_check.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "speculation/draft_gate.h"

namespace deepinfer::engine {
namespace {

constexpr size_t kMostStopSequences = 256;
constexpr size_t kMostStopIds = 4096;  // also ids of one stop sequence
constexpr size_t kMostResumePoints = 4096;

// Refusals of one request.
class Checker {
 public:
  Checker(const Request& request, int64_t vocab)
      : request_(request), name_("request " + std::to_string(request.id)), vocab_(vocab) {}

  Error refuse(const std::string& what) const { return Error::invalid(name_, what); }

  // Ids of `what`; `least` is 0, or -1 where that means none.
  Result<void> ids(const std::vector<int32_t>& ids, const char* what, int32_t least = 0) const {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= least && ids[i] < vocab_) continue;
      return refuse(std::string(what) + " " + std::to_string(i) + " is id " +
                    std::to_string(ids[i]) + ", the vocabulary has " + std::to_string(vocab_));
    }
    return {};
  }
  Result<void> at_most(size_t value, size_t most, const char* what) const {
    if (value <= most) return {};
    return refuse(std::to_string(value) + " " + what + ", at most " + std::to_string(most) +
                  " are allowed");
  }
  Result<void> within(double value, double least, double most, const char* what) const {
    if (value >= least && value <= most) return {};  // false for NaN
    return refuse(std::string(what) + " is " + std::to_string(value) + ", allowed are " +
                  std::to_string(least) + " to " + std::to_string(most));
  }
  const Request& request() const { return request_; }

 private:
  const Request& request_;
  std::string name_;
  int64_t vocab_;
};

Result<void> check_prompt(const Checker& checker, const Limits& limits) {
  const Request& request = checker.request();
  if (request.prompt.empty()) return checker.refuse("the prompt is empty");
  if (request.prompt.size() > limits.context) {
    return checker.refuse("the prompt has " + std::to_string(request.prompt.size()) +
                          " tokens, the context is " + std::to_string(limits.context));
  }
  return checker.ids(request.prompt, "prompt token");
}

Result<void> check_sampling(const Checker& checker) {
  const Request& request = checker.request();
  TRY(sampling::validate(request.sampling));
  TRY(checker.ids(request.sampling.banned_ids, "banned token"));
  for (size_t i = 0; i < request.sampling.logit_bias.size(); ++i) {
    TRY(checker.ids({request.sampling.logit_bias[i].first}, "biased token"));
  }
  return checker.ids(request.forced_ids, "forced token", -1);
}

Result<void> check_stops(const Checker& checker) {
  const Request& request = checker.request();
  TRY(checker.at_most(request.stop_ids.size(), kMostStopIds, "stop ids"));
  TRY(checker.ids(request.stop_ids, "stop token"));
  TRY(checker.at_most(request.stop_sequences.size(), kMostStopSequences, "stop sequences"));
  for (const std::vector<int32_t>& stop : request.stop_sequences) {
    if (stop.empty()) return checker.refuse("a stop sequence is empty");
    TRY(checker.at_most(stop.size(), kMostStopIds, "ids in a stop sequence"));
    TRY(checker.ids(stop, "stop sequence token"));
  }
  if (request.min_tokens > request.max_tokens) {
    return checker.refuse("min_tokens is " + std::to_string(request.min_tokens) +
                          ", max_tokens only " + std::to_string(request.max_tokens));
  }
  return {};
}

Result<void> check_service(const Checker& checker, const models::Model& model,
                           const Limits& limits) {
  const Request& request = checker.request();
  if (request.choices == 0 || request.choices > limits.waiting) {
    return checker.refuse(std::to_string(request.choices) + " choices, allowed are 1 to " +
                          std::to_string(limits.waiting));
  }
  TRY(checker.within(request.priority, -8, 8, "priority"));
  TRY(checker.within(request.weight, 1e-3, 1e3, "weight"));
  TRY(checker.within(request.ttft_target_ms, 0, 1e9, "ttft_target_ms"));
  TRY(checker.within(request.timeout_ms, 0, 1e12, "timeout_ms"));
  TRY(checker.at_most(request.resume_points.size(), kMostResumePoints, "resume points"));
  TRY(checker.at_most(request.most_drafts, speculation::DraftGate::kMost, "drafts in a step"));
  if (request.resume == Resume::replay) {
    const uint64_t least = model.bounded_replay();
    if (least == 0) return checker.refuse("this model has no bounded replay");
    if (request.replay_tokens != 0 && request.replay_tokens < least) {
      return checker.refuse("replay_tokens is " + std::to_string(request.replay_tokens) +
                            ", this model needs " + std::to_string(least));
    }
    if (request.want_prompt_logprobs) {
      return checker.refuse("prompt log-probabilities are exact, a bounded replay is not");
    }
  }
  return {};
}

Result<void> check_images(const Checker& checker, const Limits& limits) {
  const Request& request = checker.request();
  size_t end = 0;
  for (const PromptImage& image : request.images) {
    const size_t count = image.embeddings.size();
    if (count == 0 || image.start < end || count > request.prompt.size() ||
        image.start > request.prompt.size() - count) {
      return checker.refuse("an image at position " + std::to_string(image.start) + " has " +
                            std::to_string(count) + " positions, free are " + std::to_string(end) +
                            " to " + std::to_string(request.prompt.size()));
    }
    if (count > limits.rows) {
      return checker.refuse("an image has " + std::to_string(count) + " positions, a step has " +
                            std::to_string(limits.rows) + " rows");
    }
    end = image.start + count;
  }
  if (!request.images.empty() && request.want_prompt_logprobs) {
    return checker.refuse("prompts with images have no log-probabilities");
  }
  return {};
}

}  // namespace

Result<void> check_request(const Request& request, const models::Model& model,
                           const Limits& limits) {
  const Checker checker(request, model.config().vocab);
  TRY(check_prompt(checker, limits));
  TRY(check_sampling(checker));
  TRY(check_stops(checker));
  TRY(check_service(checker, model, limits));
  return check_images(checker, limits);
}

}  // namespace deepinfer::engine
