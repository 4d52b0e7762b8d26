#include "apps/bench_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "apps/forward_pass.h"

namespace deepinfer::apps {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Result<double> sample_engine(llm::Llm& llm, size_t prompt_tokens, size_t new_tokens,
                             size_t counted) {
  std::vector<int32_t> ids = spread_ids(llm.model().config(), prompt_tokens);
  // No sample finds what an earlier one left in the prefix cache.
  static uint64_t sample = 0;
  if (ids.size() > 1) {
    ids[1] = static_cast<int32_t>((static_cast<uint64_t>(ids[1]) + ++sample) %
                                  llm.model().config().vocab);
  }
  llm::Prompt prompt;
  prompt.input = std::move(ids);
  prompt.want_text = false;
  prompt.ignore_eos = true;
  prompt.max_tokens = new_tokens;
  const std::vector<llm::Answer> answers = TRY(llm.generate({&prompt, 1}, {}));
  if (answers.front().error) return *answers.front().error;
  const llm::Speed& speed = llm.speed();
  const double seconds = speed.prefill_seconds + speed.decode_seconds;
  const size_t tokens = counted != 0 ? counted : answers.front().ids.size();
  return static_cast<double>(tokens) / std::max(seconds, 1e-9);
}

}  // namespace

std::vector<int32_t> spread_ids(const weights::ModelConfig& config, size_t count) {
  std::vector<int32_t> ids = {static_cast<int32_t>(config.bos_id.value_or(1 % config.vocab))};
  for (uint64_t i = 1; i < count; ++i) {
    ids.push_back(static_cast<int32_t>((i * 2'654'435'761u + 17) % config.vocab));
  }
  return ids;
}

Result<double> sample_prefill(llm::Llm& llm) {
  const size_t length = std::min<size_t>(kPrefillTokens, llm.model().config().context - 1);
  return sample_engine(llm, length, 1, length);
}

Result<double> sample_decode(llm::Llm& llm) {
  return sample_engine(llm, 1, std::min<size_t>(kDecodeTokens, llm.model().config().context - 1),
                       0);
}

Result<double> sample_decode_at(models::Model& model, uint64_t context, size_t tokens) {
  if (context + tokens > model.config().context) {
    return Error::invalid("--context", fmt::format("{} tokens and {} new ones, the model has {}",
                                                   context, tokens, model.config().context));
  }
  ForwardPass pass = TRY(ForwardPass::create(model, 1, context + tokens));
  if (context > 0) TRY(pass.pretend(0, context));
  const std::vector<int32_t> ids = spread_ids(model.config(), tokens);
  const Clock::time_point start = Clock::now();
  for (const int32_t id : ids) {
    const Feed feed{0, {&id, 1}};
    TRY(pass.step({&feed, 1}, [](size_t, uint64_t, std::span<const float>) {}));
  }
  return static_cast<double>(tokens) / seconds_since(start);
}

}  // namespace deepinfer::apps
