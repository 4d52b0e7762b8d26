#include <algorithm>
#include <utility>

#include "llm/llm.h"

namespace deepinfer::llm {
namespace {

using engine::FinishReason;

struct Scoring {
  std::vector<Scores>& scores;
  uint64_t first_request;
  std::vector<bool> done;
  size_t live = 0;
  size_t scored = 0;

  void end(size_t index) {
    if (done[index]) return;
    done[index] = true;
    --live;
  }

  void handle(const engine::Event& event) {
    const size_t index = event.request - first_request;
    Scores& score = scores[index];
    for (size_t i = 0; i < event.prompt_scores.size(); ++i) {
      const size_t about = event.prompt_first + i;  // prompt id
      if (about == 0 || about > score.next.size()) continue;
      score.next[about - 1] = event.prompt_scores[i];
      ++scored;
    }
    if (event.finish == FinishReason::none) return;
    if (event.finish == FinishReason::error)
      score.error = Error{ErrorKind::internal, "model", event.error, ""};
    if (event.finish == FinishReason::cancelled)
      score.error = Error{ErrorKind::cancelled, "score", "was interrupted", ""};
    end(index);
  }
};

}  // namespace

Result<std::vector<Scores>> Llm::score(std::span<const std::vector<int32_t>> sequences, int32_t top,
                                       const std::function<void(size_t)>& progress,
                                       const std::atomic<bool>* cancel) {
  std::vector<Scores> scores(sequences.size());
  Scoring scoring{scores, next_request_, std::vector<bool>(sequences.size(), false)};
  next_request_ += sequences.size();
  size_t longest = 1;
  for (const auto& ids : sequences) longest = std::max(longest, ids.size() + 1);
  TRY(ensure_engine(longest));
  for (size_t i = 0; i < sequences.size(); ++i) {
    engine::Request request;
    request.id = scoring.first_request + i;
    request.prompt = sequences[i];
    request.sampling.top_logprobs = top;
    request.max_tokens = 1;
    request.ignore_eos = true;
    request.want_prompt_logprobs = true;
    request.resume = engine::Resume::none;
    request.keep = false;
    scores[i].next.resize(sequences[i].empty() ? 0 : sequences[i].size() - 1);
    const Result<void> added = engine_->add(std::move(request));
    if (added.ok()) {
      ++scoring.live;
    } else {
      scores[i].error = added.error();
      scoring.done[i] = true;
    }
  }
  bool cancelled = false;
  while (engine_->busy() && scoring.live > 0) {
    if (!cancelled && cancel != nullptr && cancel->load()) {
      cancelled = true;
      for (size_t i = 0; i < sequences.size(); ++i) {
        if (!scoring.done[i]) (void)engine_->cancel(scoring.first_request + i);
      }
    }
    const Result<void> stepped =
        engine_->step([&](const engine::Event& event) { scoring.handle(event); });
    if (progress) progress(scoring.scored);
    if (stepped.ok()) continue;
    for (size_t i = 0; i < sequences.size(); ++i) {
      if (!scoring.done[i]) scores[i].error = stepped.error();
      scoring.done[i] = true;
    }
    scoring.live = 0;
  }
  // The model and the workers belong to the caller again.
  TRY(engine_->drain([&](const engine::Event& event) { scoring.handle(event); }));
  return scores;
}

}  // namespace deepinfer::llm
