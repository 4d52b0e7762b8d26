#pragma once

// SimulatedModel: a Model for the simulation (simulation.h). Entries are ids in pages, the frontier
// is a ring of the last ids; the logits of a row come out of all entries up to it and of the ring,
// as they are found, so that a wrong page, position, window or start changes them.
//
//   SimulatedText text;
//   for (int32_t word : words) text.append(word);
//   text.logits(logits);            // what is right after these words
//
// Approximate work marks what it stores: an exact sequence that reads it gets other logits.
//
// Threads: forward() from one at a time.

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "models/model.h"

namespace deepinfer::engine {

// Logits after a text, as any family computes them when nothing went wrong. A word is an id, or an
// image's position (kImageBit).
class SimulatedText {
 public:
  static constexpr size_t kVocab = 50;
  static constexpr int32_t kEos = 1;
  static constexpr int32_t kFails = 48;   // a row with this id fails
  static constexpr int32_t kNan = 49;     // the logits after this id are NaN
  static constexpr int32_t kLastId = 47;  // the ids above are never sampled
  static constexpr int32_t kImageBit = 1 << 20;
  static constexpr int32_t kApproximateBit = 1 << 21;

  void append(int32_t word) {
    state_ = (state_ ^ static_cast<uint64_t>(word + 1)) * 1099511628211u;
    before_last_ = last_;
    last_ = word;
  }
  // Something was not as it should be.
  void spoil() { state_ ^= 0x9e3779b97f4a7c15u; }
  // [kVocab]. Mostly the two last words decide what is likely, so that texts repeat themselves and
  // n-gram drafts stand now and then.
  void logits(std::span<float> out) const;

 private:
  uint64_t state_ = 1469598103934665603u;
  int32_t last_ = 0, before_last_ = 0;
};

class SimulatedModel final : public models::Model {
 public:
  // What a family keeps and how it may be resumed; see Model.
  struct Family {
    std::string name;
    uint64_t window = 0;  // ids in the ring; 0: no frontier
    uint64_t exact_replay = 0;
    uint64_t bounded_replay = 0;
    uint64_t tail = 0;  // decoder_tail()
    size_t rollback = SIZE_MAX;
  };

  SimulatedModel(const Family& family, size_t context, ManualClock& clock);

  // Step `forward` fails after it wrote what it may, as long as it has `sequences` or more.
  void fail_next(size_t sequences) { fail_next_ = sequences; }
  size_t failures() const { return failures_; }
  size_t most_rows() const { return most_rows_; }

  const weights::ModelConfig& config() const override { return config_; }
  const cache::CacheLayout& cache_layout() const override { return layout_; }
  size_t weight_bytes_per_step() const override { return 0; }
  uint64_t decoder_tail() const override { return family_.tail; }
  uint64_t exact_replay() const override { return family_.exact_replay; }
  uint64_t bounded_replay() const override { return family_.bounded_replay; }
  size_t rollback_rows() const override { return family_.rollback; }
  size_t resident_bytes() const override { return 0; }
  const std::vector<kernels::Choice>& choices() const override { return choices_; }
  void set_profiling(bool) override {}
  std::vector<models::OperationTime> take_profile() override { return {}; }
  Result<void> forward(const models::StepBatch& batch, models::StepOutput& output) override;

 private:
  struct Slot {
    uint64_t position = 0;
    int64_t word = -1;
  };
  struct Row;
  std::optional<Error> fault_of(const models::StepBatch& batch);
  void store(const Row& row) const;
  void answer(const Row& row, float* logits) const;
  bool approximate(const models::SequenceStart& start, uint64_t position) const;
  uint64_t slots() const { return family_.window + std::min<size_t>(family_.rollback, 64); }

  Family family_;
  ManualClock& clock_;
  weights::ModelConfig config_;
  cache::CacheLayout layout_;
  std::vector<kernels::Choice> choices_;
  size_t fail_next_ = 0;
  std::atomic<size_t> failures_{0};
  size_t most_rows_ = 0;
};

}  // namespace deepinfer::engine
