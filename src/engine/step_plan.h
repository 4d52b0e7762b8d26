#pragma once

// StepPlan: what the next step shall compute, made while the one before it still runs; and the
// StepPlanner that makes it.
//
// A plan names sequences and numbers, never ids: they are filled in (step_fill.cpp) when the step
// before has ended. The numbers are those that hold when that ends in the usual way, see
// SchedulerEntry; what comes otherwise (an end, a rejected draft) makes the rows fewer.
//
// Threads: see engine_core.h.

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/resumption.h"
#include "engine/roster.h"
#include "engine/scheduler.h"

namespace deepinfer::engine {

struct StepPlan {
  struct Rows {
    Sequence* sequence = nullptr;
    uint64_t first = 0;  // position of the first row; decoding: what it is when all drafts stand
    size_t rows = 0;     // without drafts
    size_t drafts = 0;   // at most
    RowKind kind = RowKind::decode;
  };
  std::vector<Sequence*> preempt;  // before anything is reserved
  std::vector<Rows> rows;          // waiting sequences start with their first rows
  std::string waits_because;

  bool empty() const { return preempt.empty() && rows.empty(); }
  void clear() {
    preempt.clear();
    rows.clear();
    waits_because.clear();
  }
};

class StepPlanner {
 public:
  StepPlanner(const models::Model& model, const Limits& limits, const Engine::Options& options,
              const Clock& clock, Roster& roster, Resumption& resumption)
      : model_(model),
        limits_(limits),
        options_(options),
        clock_(clock),
        roster_(roster),
        resumption_(resumption) {}

  // Plans with what the step in flight will have done.
  void plan(StepPlan& plan);
  // A step was filled with so many rows of prompts.
  void filled(size_t prompt_rows);
  void charge(const Sequence& sequence, size_t rows);
  // A request came, or ended; for the fairness between users.
  void arrived(const Request& request);
  void left(const Request& request);

  StepCost cost;

 private:
  SchedulerEntry entry_of(const Sequence& sequence, size_t index);
  void plan_once(StepPlan& plan);
  void add_running();
  void add_waiting();
  void keep_urgent(size_t first);
  size_t drafts_of(Sequence& sequence) const;
  void add_rows(const PlannedRows& planned, StepPlan& plan);

  const models::Model& model_;
  const Limits& limits_;
  const Engine::Options& options_;
  const Clock& clock_;
  Roster& roster_;
  Resumption& resumption_;
  FairShare shares_;
  std::unordered_map<uint64_t, size_t> users_;  // live requests of each
  double cost_of_row_ = 0;                      // of a draft, in this plan
  std::vector<SchedulerEntry> entries_;
  std::vector<Sequence*> sequences_;  // [entries_]
  bool prompts_wait_ = false;         // in the last plan
  uint32_t steps_without_prefill_ = 0;
  uint64_t started_ = 0;  // in all plans
};

}  // namespace deepinfer::engine
