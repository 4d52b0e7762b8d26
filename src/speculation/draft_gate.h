#pragma once

// DraftGate: how many drafted rows of one sequence are worth verifying, from how many stood so far
// and what rows cost. Switches itself off where drafts lose and tries again now and then, so that a
// text that no draft fits runs within a few per cent of plain decoding.
//
// The count is the one with the most expected tokens for the time: with c the cost of a row and a_j
// the estimated probability that the first j drafts stand, g drafts give 1 + a_1 + ... + a_g tokens
// in 1 + g c (dspark.md 7.3). Estimates by position forget by a twentieth per observation; rows
// behind the first rejected one are not observed, and their estimates slowly return to that of the
// position before them, so that a count that was too small grows again. Failures in a row that the
// estimates hold for impossible make it forget everything at once.
//
// While no count pays, one row is tried after a pause, which doubles as long as tries fail. Rows
// are paid from a budget that earns kEarned rows a step and what accepted drafts gain, so that
// drafted rows without success stay under 1 + kEarned * steps.
//
// Threads: one thread at a time. Deterministic in its calls: no clock.

#include <cstddef>
#include <cstdint>

namespace deepinfer::speculation {

class DraftGate {
 public:
  static constexpr size_t kMost = 32;            // drafts in a step
  static constexpr double kEarned = 0.02;        // rows a step
  static constexpr double kUnknownCost = 0.3;    // of a row whose cost is not known
  static constexpr uint32_t kShortestPause = 4;  // steps
  static constexpr uint32_t kLongestPause = 64;

  // Called once a step. Drafts worth verifying when the drafter proposes up to `most`;
  // `cost_of_row`: time of one more row of this step over the time of the step without it
  // (measured; 0 when unknown).
  size_t drafts(size_t most, double cost_of_row);
  // Of `drafted` verified rows the first `accepted` stood. A step without drafts needs no call.
  // Requires accepted <= drafted.
  void observe(size_t drafted, size_t accepted);
  bool open() const { return open_ && can_pay(); }  // drafts pay at present
  double acceptance(size_t position) const;         // estimate for the draft at `position`, from 0

 private:
  size_t best_count(size_t most, double cost) const;
  // Rows that cost a step each do not, whatever stands.
  bool can_pay() const;
  double most_budget() const;
  void forget();
  void close(uint32_t pause);

  // [position] decayed counts of drafts that stood and of those that were judged.
  double stood_[kMost] = {};
  double judged_[kMost] = {};
  double surprise_ = 1;  // probability of the failures in a row, by the estimates
  double budget_ = 1;    // rows
  double cost_ = kUnknownCost;
  bool open_ = true;
  uint32_t pause_ = 0;  // steps left before the next try
  uint32_t pause_length_ = kShortestPause;
};

}  // namespace deepinfer::speculation
