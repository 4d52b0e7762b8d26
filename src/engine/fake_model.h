#pragma once

// FakeModel: a Model for the tests of this folder. It stores the ids of the rows in the cache pages
// and makes the logits of a row from all ids up to it, read back from the pages, so that a wrong
// page, position or order changes the answer. continuation() says what is right.
//
// With windows (add_windows()) it behaves like V4.1 in small: an encoder layer and a decoder layer,
// each with a ring of the last `window` rows in the frontier. A row that finds another row than its
// own past in a ring, or none, stores another entry, hands a wrong row on and gives other logits;
// so a wrong frontier, a rollback that goes too far, a decoder that begins too late and a replay
// that begins too late all change the answer.

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
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

  // Before an engine is created.
  void add_windows(size_t window, size_t rollback, bool decoder) {
    window_ = window;
    rollback_ = rollback;
    tail = decoder ? window : 0;
    replay = (decoder ? 2 : 1) * (window - 1);
    bounded = window + rollback;
    ring_ = window + rollback;
    layout_.frontier = {{"encoder window", ring_ * sizeof(Slot)},
                        {"decoder window", ring_ * sizeof(Slot)}};
  }

  size_t memory = SIZE_MAX;  // of logits_after()
  uint64_t tail = 0;         // decoder_tail()
  uint64_t replay = 0;       // exact_replay()
  uint64_t bounded = 0;      // bounded_replay()
  // Rows that ran the decoder, and rows below SequenceStart::decoder, so far.
  size_t decoder_rows = 0, encoder_rows = 0;
  // Rows with this id make forward() fail, or give logits that are NaN.
  std::optional<int32_t> fails_on, nan_on;
  bool fails_once = false;       // the next step of two sequences or more fails, after it wrote
  int failures = 0;              // so many steps fail
  ManualClock* clock = nullptr;  // advanced by 10 ms in each forward()
  size_t most_rows = 0, most_wanted = 0, most_sequences = 0;  // of one step, so far

  // memory: how many ids are looked at, from the last one on; few make texts that repeat
  // themselves.
  static std::vector<float> logits_after(const std::vector<int32_t>& ids, size_t vocab = kVocab,
                                         size_t memory = SIZE_MAX) {
    uint64_t state = 1469598103934665603u;
    const size_t first = ids.size() - std::min(memory, ids.size());
    for (int32_t id : std::span(ids).subspan(first))
      state = (state ^ static_cast<uint64_t>(id + 1)) * 1099511628211u;
    std::vector<float> logits(vocab);
    for (float& x : logits) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      x = static_cast<float>(state >> 44) * 4e-6f;  // [0, 4.2)
    }
    return logits;
  }

  // Greedy ids after `prompt`, to `count` or the first of `stops`, which is included.
  static std::vector<int32_t> continuation(std::vector<int32_t> prompt, size_t count,
                                           const std::vector<int32_t>& stops = {kEos},
                                           size_t memory = SIZE_MAX) {
    std::vector<int32_t> out;
    while (out.size() < count) {
      const std::vector<float> logits = logits_after(prompt, kVocab, memory);
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
  uint64_t exact_replay() const override { return replay; }
  uint64_t bounded_replay() const override { return bounded; }
  size_t rollback_rows() const override { return window_ > 0 ? rollback_ : SIZE_MAX; }
  size_t resident_bytes() const override { return 0; }
  const std::vector<kernels::Choice>& choices() const override { return choices_; }
  void set_profiling(bool) override {}
  std::vector<models::OperationTime> take_profile() override { return {}; }

  Result<void> forward(const models::StepBatch& batch, models::StepOutput& output) override {
    if (clock != nullptr) clock->advance_ns(10'000'000);
    most_rows = std::max(most_rows, batch.ids.size());
    most_sequences = std::max(most_sequences, batch.caches.size());
    ++steps;
    if (failures > 0) {
      --failures;
      return Error{ErrorKind::internal, "layer 1 attention", "the result is NaN", ""};
    }
    std::vector<float> all;
    output.wanted_rows = 0;
    std::vector<std::vector<Slot>> frontiers;  // written back when the step succeeds
    for (size_t s = 0; s < batch.caches.size(); ++s) {
      Past past(*batch.caches[s], batch.starts.empty() ? models::SequenceStart{} : batch.starts[s]);
      past.frontier.resize(2 * ring_);
      if (ring_ > 0) {
        std::memcpy(past.frontier.data(), past.cache.frontier(), 2 * ring_ * sizeof(Slot));
      }
      for (size_t row = batch.row_start[s]; row < batch.row_start[s + 1]; ++row) {
        if (batch.ids[row] == fails_on) {
          return Error{ErrorKind::internal, "layer 3 ffn down", "the result is NaN", ""};
        }
        // An image's row counts as the id that its embedding holds.
        const bool image = !batch.embeddings.empty() && batch.embeddings[row] != nullptr;
        const int32_t id = image ? static_cast<int32_t>(*batch.embeddings[row]) : batch.ids[row];
        const bool right = run_row(past, batch.positions[row], id, batch.want_logits[row] != 0);
        if (batch.want_logits[row] == 0) continue;
        std::vector<int32_t> seen = load(past.cache, batch.positions[row] + 1);
        if (!right) seen.push_back(-77);
        std::vector<float> logits = logits_after(seen, config_.vocab, memory);
        if (batch.ids[row] == nan_on) logits[7] = std::numeric_limits<float>::quiet_NaN();
        all.insert(all.end(), logits.begin(), logits.end());
        ++output.wanted_rows;
      }
      frontiers.push_back(std::move(past.frontier));
    }
    if (batch.caches.size() > 1 && std::exchange(fails_once, false)) {
      return Error::io("weights at byte 4096", "read: Input/output error");
    }
    for (size_t s = 0; ring_ > 0 && s < batch.caches.size(); ++s) {
      std::memcpy(batch.caches[s]->frontier(), frontiers[s].data(), 2 * ring_ * sizeof(Slot));
    }
    most_wanted = std::max(most_wanted, output.wanted_rows);
    output.logits = Buffer(std::max<size_t>(all.size(), 1) * sizeof(float));
    if (!all.empty()) std::memcpy(output.logits.data(), all.data(), all.size() * sizeof(float));
    return {};
  }

  size_t steps = 0;

 private:
  // A row of a ring: position + 1, and the id that stood there.
  struct Slot {
    uint64_t position = 0;
    int64_t id = 0;
  };
  struct Past {
    Past(cache::SequenceCache& the_cache, const models::SequenceStart& the_start)
        : cache(the_cache), start(the_start) {}
    cache::SequenceCache& cache;
    models::SequenceStart start;
    std::vector<Slot> frontier;  // [2][ring]
  };

  // Whether the ring at `base` holds the rows before `position` that a full window needs.
  bool window_holds(const Past& past, size_t base, uint64_t first, uint64_t position) const {
    const uint64_t least = position + 1 >= window_ ? position + 1 - window_ : 0;
    if (first > least) return false;
    for (uint64_t p = least; p < position; ++p) {
      const Slot& slot = past.frontier[base + p % ring_];
      if (slot.position != p + 1 || slot.id != load_one(past.cache, p)) return false;
    }
    return true;
  }

  // Stores the row; whether its logits would be right.
  bool run_row(Past& past, uint64_t position, int32_t id, bool wanted) {
    const bool decodes = position >= past.start.decoder;
    check(decodes || !wanted, "logits of a row that stops early");
    ++(decodes ? decoder_rows : encoder_rows);
    const bool encoded = ring_ == 0 || window_holds(past, 0, past.start.window, position);
    if (position >= past.start.entries) store(past.cache, position, encoded ? id : id + 1000);
    if (ring_ == 0) return true;
    past.frontier[position % ring_] = {position + 1, id};
    if (tail == 0) return encoded;
    if (!decodes) return false;
    const bool decoded = encoded && window_holds(past, ring_, past.start.decoder, position);
    past.frontier[ring_ + position % ring_] = {position + 1, encoded ? id : id + 1000};
    return decoded;
  }

  static void store(const cache::SequenceCache& cache, uint64_t position, int32_t id) {
    std::byte* page = cache.page(position / cache::kTokensPerPage, 0);
    std::memcpy(page + position % cache::kTokensPerPage * sizeof(id), &id, sizeof(id));
  }
  static int32_t load_one(const cache::SequenceCache& cache, uint64_t position) {
    int32_t id = 0;
    const std::byte* page = cache.page(position / cache::kTokensPerPage, 0);
    std::memcpy(&id, page + position % cache::kTokensPerPage * sizeof(id), sizeof(id));
    return id;
  }
  static std::vector<int32_t> load(const cache::SequenceCache& cache, uint64_t count) {
    std::vector<int32_t> ids(count);
    for (uint64_t i = 0; i < count; ++i) ids[i] = load_one(cache, i);
    return ids;
  }

  size_t window_ = 0, rollback_ = 0, ring_ = 0;
  weights::ModelConfig config_;
  cache::CacheLayout layout_;
  std::vector<kernels::Choice> choices_;
};

inline constexpr size_t kFakePageBytes = cache::kTokensPerPage * sizeof(int32_t);

}  // namespace deepinfer::engine
