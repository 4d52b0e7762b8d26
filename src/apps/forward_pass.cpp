#include "apps/forward_pass.h"

#include <algorithm>
#include <string>

namespace deepinfer::apps {

Result<ForwardPass> ForwardPass::create(models::Model& model, size_t sequences, size_t tokens) {
  const size_t pages_each = (tokens + cache::kTokensPerPage - 1) / cache::kTokensPerPage;
  ForwardPass pass(model, TRY(cache::PagePool::create(
                              model.cache_layout(), sequences * std::max<size_t>(pages_each, 1))));
  for (size_t i = 0; i < sequences; ++i) pass.caches_.emplace_back(pass.pool_.get());
  return pass;
}

Result<void> ForwardPass::step(std::span<const Feed> feeds, const OnLogits& on_logits) {
  std::vector<int32_t> ids;
  std::vector<uint64_t> positions;
  std::vector<uint32_t> row_start = {0};
  std::vector<cache::SequenceCache*> caches;
  for (const Feed& feed : feeds) {
    cache::SequenceCache& held = caches_[feed.sequence];
    TRY(held.reserve(held.length() + feed.ids.size()));
    for (size_t i = 0; i < feed.ids.size(); ++i) positions.push_back(held.length() + i);
    ids.insert(ids.end(), feed.ids.begin(), feed.ids.end());
    row_start.push_back(static_cast<uint32_t>(ids.size()));
    caches.push_back(&held);
  }
  const std::vector<uint8_t> want_logits(ids.size(), 1);
  const models::StepBatch batch{.ids = ids,
                                .positions = positions,
                                .row_start = row_start,
                                .want_logits = want_logits,
                                .caches = caches};
  TRY(model_->forward(batch, output_));
  const size_t vocab = model_->config().vocab;
  size_t row = 0;
  for (const Feed& feed : feeds) {
    cache::SequenceCache& held = caches_[feed.sequence];
    for (size_t i = 0; i < feed.ids.size(); ++i, ++row)
      on_logits(feed.sequence, held.length() + i, {output_.row(row, vocab), vocab});
    held.set_length(held.length() + feed.ids.size());
  }
  return {};
}

Result<void> ForwardPass::pretend(size_t sequence, uint64_t tokens) {
  cache::SequenceCache& held = caches_[sequence];
  TRY(held.reserve(tokens));
  const cache::CacheLayout& layout = pool_->layout();
  uint32_t state = 1;
  for (size_t page = 0; page < held.page_count(); ++page) {
    for (size_t stream = 0; stream < layout.growing.size(); ++stream) {
      std::byte* bytes = held.page(page, stream);
      for (size_t i = 0; i < layout.growing[stream].bytes_per_page; ++i) {
        // 0x30 .. 0x3f is no NaN and nothing huge as fp32, bf16, E4M3, E2M1 pairs or UE8M0.
        state = state * 1'664'525u + 1'013'904'223u;
        bytes[i] = static_cast<std::byte>(0x30 + (state >> 28));
      }
    }
  }
  held.set_length(tokens);
  return {};
}

Result<void> run_chunks(models::Model& model, std::span<const int32_t> ids, size_t chunk,
                        const ForwardPass::OnLogits& on_logits) {
  ForwardPass pass = TRY(ForwardPass::create(model, 1, ids.size()));
  for (size_t at = 0; at < ids.size(); at += chunk) {
    const Feed feed{0, ids.subspan(at, std::min(chunk, ids.size() - at))};
    TRY(pass.step({&feed, 1}, on_logits));
  }
  return {};
}

Result<void> check_ids(const weights::ModelConfig& config, std::span<const int32_t> ids,
                       const std::string& place) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && static_cast<uint32_t>(ids[i]) < config.vocab) continue;
    return Error::invalid(place, "id " + std::to_string(ids[i]) + " at index " + std::to_string(i) +
                                     " is outside of the vocabulary of " +
                                     std::to_string(config.vocab));
  }
  if (ids.size() > config.context) {
    return Error::invalid(place, std::to_string(ids.size()) + " ids, the model's context holds " +
                                     std::to_string(config.context));
  }
  return {};
}

}  // namespace deepinfer::apps
