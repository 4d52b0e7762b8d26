#pragma once

// ProgressWatch: when did the work of an engine last move? Tokens, prompt scores and ends are
// progress. Rows of prompts are too, but only as many as it takes to compute all live prompts
// twice without any of the others: an engine that preempts and computes again for ever, or verifies
// drafts that never stand, runs steps and does not move.
//
// Threads: one at a time.

#include <cstddef>
#include <cstdint>

namespace deepinfer::engine {

class ProgressWatch {
 public:
  // Work is there, and there was none.
  void begin(int64_t now_ns) {
    last_ns_ = now_ns;
    rows_ = 0;
  }

  // A step ended. events: what it told anyone; prompt_rows: that it computed; live_tokens: of all
  // live requests, prompts and outputs.
  void step_ended(int64_t now_ns, size_t events, uint64_t prompt_rows, uint64_t live_tokens) {
    rows_ = events > 0 ? 0 : rows_ + prompt_rows;
    if (events > 0 || (prompt_rows > 0 && rows_ <= 2 * live_tokens)) last_ns_ = now_ns;
  }

  int64_t last_ns() const { return last_ns_; }
  uint64_t rows_since_event() const { return rows_; }

 private:
  int64_t last_ns_ = 0;
  uint64_t rows_ = 0;  // of prompts, since the last event
};

}  // namespace deepinfer::engine
