#pragma once

// FakeModel: a Model for the tests of this folder. It stores the ids of the rows in the cache pages
// and makes the logits of a row from all ids up to it, read back from the pages, so that a wrong
// page, position or order changes the answer. continuation() says what is right.

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "models/model.h"

namespace deepinfer::engine {

class FakeModel final : public models::Model {
 public:
  static constexpr size_t kVocab = 50;
  static constexpr int32_t kEos = 1;

  explicit FakeModel(size_t context = 1000, size_t vocab = kVocab) {
    config_.vocab = static_cast<uint32_t>(vocab);
    config_.context = static_cast<uint32_t>(context);
    config_.eos_ids = {static_cast<uint32_t>(kEos)};
    layout_.growing = {{"ids", cache::kTokensPerPage * sizeof(int32_t)}};
  }

  uint64_t tail = 0;  // decoder_tail()
  // Rows that ran the decoder, and rows below SequenceStart::decoder, so far.
  size_t decoder_rows = 0, encoder_rows = 0;
  // Rows with this id make forward() fail, or give logits that are NaN.
  std::optional<int32_t> fails_on, nan_on;
  bool fails_once = false;       // the next step of two sequences or more fails, after it wrote
  ManualClock* clock = nullptr;  // advanced by 10 ms in each forward()
  size_t most_rows = 0, most_wanted = 0, most_sequences = 0;  // of one step, so far

  static std::vector<float> logits_after(const std::vector<int32_t>& ids, size_t vocab = kVocab) {
    uint64_t state = 1469598103934665603u;
    for (int32_t id : ids) state = (state ^ static_cast<uint64_t>(id + 1)) * 1099511628211u;
    std::vector<float> logits(vocab);
    for (float& x : logits) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      x = static_cast<float>(state >> 44) * 4e-6f;  // [0, 4.2)
    }
    return logits;
  }

  // Greedy ids after `prompt`, to `count` or the first of `stops`, which is included.
  static std::vector<int32_t> continuation(std::vector<int32_t> prompt, size_t count,
                                           const std::vector<int32_t>& stops = {kEos}) {
    std::vector<int32_t> out;
    while (out.size() < count) {
      const std::vector<float> logits = logits_after(prompt);
      out.push_back(
          static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      prompt.push_back(out.back());
      if (std::find(stops.begin(), stops.end(), out.back()) != stops.end()) break;
    }
    return out;
  }

  const weights::ModelConfig& config() const override { return config_; }
  const cache::CacheLayout& cache_layout() const override { return layout_; }
  size_t weight_bytes_per_step() const override { return 0; }
  uint64_t decoder_tail() const override { return tail; }
  size_t resident_bytes() const override { return 0; }
  const std::vector<kernels::Choice>& choices() const override { return choices_; }
  void set_profiling(bool) override {}
  std::vector<models::OperationTime> take_profile() override { return {}; }

  Result<void> forward(const models::StepBatch& batch, models::StepOutput& output) override {
    if (clock != nullptr) clock->advance_ns(10'000'000);
    most_rows = std::max(most_rows, batch.ids.size());
    most_sequences = std::max(most_sequences, batch.caches.size());
    std::vector<float> all;
    output.wanted_rows = 0;
    for (size_t s = 0; s < batch.caches.size(); ++s) {
      for (size_t row = batch.row_start[s]; row < batch.row_start[s + 1]; ++row) {
        const bool decodes =
            batch.starts.empty() || batch.positions[row] >= batch.starts[s].decoder;
        check(decodes || batch.want_logits[row] == 0, "logits of a row that stops early");
        ++(decodes ? decoder_rows : encoder_rows);
        if (batch.ids[row] == fails_on) {
          return Error{ErrorKind::internal, "layer 3 ffn down", "the result is NaN", ""};
        }
        // An image's row counts as the id that its embedding holds.
        const bool image = !batch.embeddings.empty() && batch.embeddings[row] != nullptr;
        const int32_t id = image ? static_cast<int32_t>(*batch.embeddings[row]) : batch.ids[row];
        store(*batch.caches[s], batch.positions[row], id);
        if (batch.want_logits[row] == 0) continue;
        std::vector<float> logits =
            logits_after(load(*batch.caches[s], batch.positions[row] + 1), config_.vocab);
        if (batch.ids[row] == nan_on) logits[7] = std::numeric_limits<float>::quiet_NaN();
        all.insert(all.end(), logits.begin(), logits.end());
        ++output.wanted_rows;
      }
    }
    if (batch.caches.size() > 1 && std::exchange(fails_once, false)) {
      return Error::io("weights at byte 4096", "read: Input/output error");
    }
    most_wanted = std::max(most_wanted, output.wanted_rows);
    output.logits = Buffer(std::max<size_t>(all.size(), 1) * sizeof(float));
    if (!all.empty()) std::memcpy(output.logits.data(), all.data(), all.size() * sizeof(float));
    return {};
  }

 private:
  static void store(const cache::SequenceCache& cache, uint64_t position, int32_t id) {
    std::byte* page = cache.page(position / cache::kTokensPerPage, 0);
    std::memcpy(page + position % cache::kTokensPerPage * sizeof(id), &id, sizeof(id));
  }
  static std::vector<int32_t> load(const cache::SequenceCache& cache, uint64_t count) {
    std::vector<int32_t> ids(count);
    for (uint64_t i = 0; i < count; ++i) {
      const std::byte* page = cache.page(i / cache::kTokensPerPage, 0);
      std::memcpy(&ids[i], page + i % cache::kTokensPerPage * sizeof(int32_t), sizeof(int32_t));
    }
    return ids;
  }

  weights::ModelConfig config_;
  cache::CacheLayout layout_;
  std::vector<kernels::Choice> choices_;
};

inline constexpr size_t kFakePageBytes = cache::kTokensPerPage * sizeof(int32_t);

}  // namespace deepinfer::engine
