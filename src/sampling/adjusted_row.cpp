#include "sampling/adjusted_row.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

#include "sampling/vocabulary_ops.h"

namespace deepinfer::sampling {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool penalizes(const Parameters& p) {
  return p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f;
}

void penalize(const SampleRow& row, const Parameters& p, Workspace& workspace) {
  const size_t vocab = row.logits.size();
  workspace.counts.resize(std::max(workspace.counts.size(), vocab), 0);
  for (int32_t id : row.seen) {
    check(id >= 0 && static_cast<size_t>(id) < vocab, "seen id outside the vocabulary");
    ++workspace.counts[static_cast<size_t>(id)];
  }
  for (int32_t id : row.seen) {
    uint32_t& count = workspace.counts[static_cast<size_t>(id)];
    if (count == 0) continue;  // an earlier occurrence was counted for all
    float& logit = workspace.logits[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty;
    logit -= p.presence_penalty + p.frequency_penalty * static_cast<float>(count);
    count = 0;
  }
}

Result<void> check_id(const char* what, int32_t id, size_t vocab) {
  if (id >= 0 && static_cast<size_t>(id) < vocab) return {};
  return Error::invalid(
      what, "id " + std::to_string(id) + ", the vocabulary has " + std::to_string(vocab));
}

}  // namespace

Result<void> check_row(const SampleRow& row, const Parameters& p) {
  const size_t vocab = row.logits.size();
  for (const auto& [id, bias] : p.logit_bias) TRY(check_id("logit_bias", id, vocab));
  for (int32_t id : p.banned_ids) TRY(check_id("banned_ids", id, vocab));
  for (int32_t id : row.banned) TRY(check_id("banned ids of the row", id, vocab));
  if (row.forced != -1) TRY(check_id("forced id", row.forced, vocab));
  if (!row.mask.empty() && row.mask.size() != (vocab + 31) / 32) {
    return Error{ErrorKind::internal, "mask",
                 "has " + std::to_string(row.mask.size()) + " words, " + std::to_string(vocab) +
                     " ids need " + std::to_string((vocab + 31) / 32),
                 ""};
  }
  return {};
}

Result<std::span<const float>> adjusted_row(const SampleRow& row, const Parameters& p,
                                            Workspace& workspace) {
  TRY(check_row(row, p));
  if (row.mask.empty() && row.banned.empty() && p.banned_ids.empty() && p.logit_bias.empty() &&
      (!penalizes(p) || row.seen.empty())) {
    return row.logits;
  }
  std::vector<float>& logits = workspace.logits;  // [vocab]
  const bool masks_first = !row.mask.empty();
  if (masks_first) {
    // Masked ids stay at -infinity: no bias and no penalty moves that.
    logits.resize(row.logits.size());
    vocabulary_ops(row.isa).masked(row.logits.data(), row.mask.data(), logits.size(),
                                   logits.data());
  } else {
    logits.assign(row.logits.begin(), row.logits.end());
  }
  for (const auto& [id, bias] : p.logit_bias) logits[static_cast<size_t>(id)] += bias;
  if (penalizes(p)) penalize(row, p, workspace);
  for (int32_t id : p.banned_ids) logits[static_cast<size_t>(id)] = -kInfinity;
  for (int32_t id : row.banned) logits[static_cast<size_t>(id)] = -kInfinity;
  return std::span<const float>(logits);
}

Result<size_t> highest(kernels::Isa isa, std::span<const float> logits, const char* what) {
  const size_t best = vocabulary_ops(isa).highest(logits.data(), logits.size());
  if (best >= logits.size()) {
    const auto nan = std::find_if(logits.begin(), logits.end(), [](float x) { return x != x; });
    return Error{ErrorKind::internal, what, "NaN for id " + std::to_string(nan - logits.begin()),
                 "the model's result is void"};
  }
  if (logits[best] == kInfinity) {
    return Error{ErrorKind::internal, what, "infinite for id " + std::to_string(best),
                 "the model's result is void"};
  }
  return best;
}

std::string bans_text(const SampleRow& row, const Parameters& p) {
  std::string text;
  if (!row.mask.empty()) {
    size_t allowed = 0;
    for (size_t id = 0; id < row.logits.size(); ++id) allowed += row.mask[id / 32] >> id % 32 & 1;
    text = "a mask allows " + std::to_string(allowed) + ", ";
  }
  return text + std::to_string(p.banned_ids.size() + row.banned.size()) + " are banned";
}

}  // namespace deepinfer::sampling
