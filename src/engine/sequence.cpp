#include "engine/sequence.h"

#include <algorithm>

namespace deepinfer::engine {
namespace {

double ms_of(int64_t ns) { return static_cast<double>(ns) / 1e6; }

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::none:
      return "none";
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::error:
      return "error";
  }
  check(false, "finish reason");
  return {};
}

const float* Sequence::embedding(size_t position) const {
  for (const PromptImage& image : request().images) {
    if (position < image.start) break;
    if (position - image.start < image.embeddings.size()) {
      return image.embeddings[position - image.start];
    }
  }
  return nullptr;
}

size_t Sequence::first_wanted(size_t first) const {
  const bool scores = request().want_prompt_logprobs && choice == 0 && scored < prompt_size();
  return scores ? std::max(first, scored - 1) : ids.size() - 1;
}

RequestStats stats_of(const Sequence& sequence) {
  RequestStats stats;
  stats.prompt_tokens = sequence.prompt_size();
  stats.cached_tokens = sequence.cached_tokens;
  stats.resume = sequence.resumed;
  stats.not_reused = sequence.not_reused;
  stats.completion_tokens = sequence.output_size();
  stats.drafted = sequence.drafted;
  stats.accepted = sequence.accepted;
  stats.preemptions = sequence.preemptions;
  if (sequence.first_row_ns >= 0) {
    stats.queue_ms = ms_of(sequence.first_row_ns - sequence.added_ns);
  }
  if (stats.completion_tokens > 0) {
    stats.ttft_ms = ms_of(sequence.first_token_ns - sequence.added_ns);
  }
  if (stats.completion_tokens > 1) {
    stats.tpot_ms = ms_of(sequence.last_token_ns - sequence.first_token_ns) /
                    static_cast<double>(stats.completion_tokens - 1);
  }
  stats.itl_ms_max = ms_of(sequence.longest_gap_ns);
  stats.logprob_sum = sequence.logprob_sum;
  return stats;
}

}  // namespace deepinfer::engine
