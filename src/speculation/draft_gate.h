#pragma once

// DraftGate: how many drafted rows of one sequence are worth verifying, from how many stood so far
// and what rows cost. Switches itself off where drafts lose and tries again now and then, so that a
// text that no draft fits runs within a few per cent of plain decoding.
//
// Threads: one thread at a time. Deterministic in its calls: no clock.

#include <cstddef>
#include <cstdint>

namespace deepinfer::speculation {

class DraftGate {
 public:
  // Drafts worth verifying when the drafter proposes up to `most`; `cost_of_row`: time of one more
  // row of this step over the time of the step without it (measured; 0 when unknown).
  size_t drafts(size_t most, double cost_of_row);
  // Of `drafted` verified rows the first `accepted` stood.
  void observe(size_t drafted, size_t accepted);
  bool open() const;                         // drafts pay at present
  double acceptance(size_t position) const;  // estimate for the draft at `position`, from 0

 private:
  static constexpr size_t kMost = 32;
  double rate_[kMost] = {};  // moving estimates, given that the drafts before stood
  uint32_t seen_[kMost] = {};
  uint32_t pause_ = 0;  // steps left before the next try
  uint32_t pause_length_ = 0;
};

}  // namespace deepinfer::speculation
