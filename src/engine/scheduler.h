#pragma once

// Scheduler: a pure function from (sequences, budget, clock) to the rows of the next step. It knows
// numbers only: no cache, no model, no ids.
//
// Rules
//   1. Every decoding sequence has its row in every step. The one exception: an image that has no
//      room beside the decoding rows has a step for itself, after `prefill_every` - 1 steps without
//      rows of prompts. Drafted rows come after all of those, first drafts of all before second
//      ones; of rows, pages and the time target they have at most the half that prompts leave.
//   2. Prompts get what is left of the rows and of the step's time target, and at least
//      `prefill_floor_rows` every `prefill_every` steps whatever the target says: each side
//      advances within a bounded number of steps.
//   3. Among prompts: priority, then those that gave way, then the nearest deadline that can still
//      be met, then the user who was served least (rows, weighted), then the shorter one (2048 rows
//      weigh as much as `ageing_ns` of waiting), then arrival. While others want rows too, one has
//      three quarters of what is left at most, so that short ones are not stuck behind a long one.
//      Ageing bounds the wait of all and leaves users their shares: an eighth of the rows of
//      prompts, and every eighth of the starts for which there is one place only, are those of the
//      prompt with the highest priority + waited / ageing_ns.
//   4. A sequence starts when the pages of all that is pending are free or can be freed, beside
//      what running prompts still need and a little for decoding ones; one that does not fit does
//      not block smaller ones behind it, but its pages are kept for the most aged one from
//      `reserve_after_ns` of waiting on, and for one that gave way at once.
//   5. Under pressure the running sequence that is cheapest to restore gives way, of the lowest
//      priority first; never the oldest of the highest priority, never one that was preempted
//      `max_preemptions` times while another can go. So each step makes progress. Nobody starts in
//      a step in which one gave way. Prompts that are due make others give way too.
//
// Requires of the caller: rows and logits_rows of the budget for every decoding sequence; pages for
// one full context in all.
//
// Threads: pure functions.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/fair_share.h"
#include "engine/step_cost.h"

namespace deepinfer::engine {

enum class Phase : uint8_t { waiting, prefilling, decoding };

// One live sequence, as the scheduler sees it. While a step is in flight the numbers are those that
// hold when it ends in the usual way (one token a decoding sequence, no stop).
struct SchedulerEntry {
  size_t index = 0;  // the caller's; returned in the plan
  Phase phase = Phase::waiting;
  uint64_t arrival = 0;  // order of add(); unique
  int64_t added_ns = 0;
  int priority = 0;         // higher goes first; -8 .. 8
  int64_t deadline_ns = 0;  // of the first token; 0: none
  uint64_t user = 0;        // whom fairness counts; 0 is one user too
  double weight = 1;        // share of that user
  uint64_t context = 0;     // tokens in the cache; for a waiting one: that its resume point gives
  uint64_t pending = 1;     // tokens to compute until the next token is sampled
  uint64_t most_rows = 0;   // 0: any; else the most rows that its next chunk may have (an image)
  uint64_t least_rows = 1;  // fewer are worth nothing (an image that must run as one)
  uint32_t logits_rows_all = 0;  // 1: each row has logits (prompt scores), 0: the last one
  uint32_t drafts = 0;           // drafted rows that may pay; decoding only
  uint64_t pages = 0;            // held by it alone
  uint64_t tokens_reserved = 0;  // tokens that its pages hold
  // Of a waiting one: pages of its resume point that nobody else holds. They count as free, and no
  // longer do when it starts.
  uint64_t pinned_pages = 0;
  uint64_t restore_tokens = 0;  // to compute again if it gives way now
  uint32_t preemptions = 0;
  bool runnable = true;  // false: waits for something else (an image, a grammar)
};

struct SchedulerBudget {
  size_t rows = 0;
  size_t logits_rows = 0;
  size_t sequences = 0;       // running at once
  size_t free_pages = 0;      // free now, or evictable
  double target_seconds = 0;  // of a step with decoding rows; 0: none
  uint32_t prefill_every = 4;
  size_t prefill_floor_rows = 16;
  int64_t ageing_ns = 2'000'000'000;  // of waiting that weigh as much as one priority
  int64_t reserve_after_ns = 5'000'000'000;
  uint32_t max_preemptions = 3;
  uint32_t steps_without_prefill = 0;  // so far, while a prompt waited
  uint64_t started = 0;                // sequences that were admitted, so far
};

enum class RowKind : uint8_t { decode, verify, prefill };

struct PlannedRows {
  size_t index = 0;  // SchedulerEntry::index
  size_t rows = 0;   // the drafts included
  size_t drafts = 0;
  RowKind kind = RowKind::decode;
};

struct SchedulerPlan {
  std::vector<size_t> preempt;    // in this order, before anything is reserved
  std::vector<size_t> admit;      // waiting ones that start, in this order
  std::vector<PlannedRows> rows;  // decode and verify, then prefill
  size_t decode_rows = 0, verify_rows = 0, prefill_rows = 0;
  double expected_seconds = 0;
  // Why the first waiting sequence did not start; empty: none waits. For logs and /ready.
  std::string waits_because;
};

// entries: any order. Linear in their number but for one sort.
SchedulerPlan plan_step(std::span<const SchedulerEntry> entries, const SchedulerBudget& budget,
                        const FairShare& shares, const StepCost& cost, int64_t now_ns);

}  // namespace deepinfer::engine
