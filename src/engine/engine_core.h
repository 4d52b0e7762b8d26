#pragma once

// EngineCore: what an engine is made of, and the two halves of its loop.
//
//   caller's half    while a step computes: cancels, time limits, events, plan()
//   turn             between two steps: commit() the rows of the one that ended, fill() the next
//
// Threads: the turn. Sequences, pages, prefix cache, plan and events belong to one thread at a
// time: to the caller while a step computes, to whoever computes from the moment at which the
// caller hands over a plan (executor.h) until the turn is done. While a step computes, its thread
// reads the rows and writes the pages and frontiers that they name, and nothing else: so the
// caller's half never touches the cache of a sequence with rows in flight (it counts pages, and
// takes them in fill()).
//
// What happens between plan and fill, and how it is put right:
//   a sequence ended, or was cancelled     its rows are left out
//   a draft was rejected                   its rows begin earlier
//   a page or a resume point is missing    its rows are left out; it is planned again
//   a plan met a step in flight that is to end the sequence whatever comes: it is not planned
// So no row is computed for a sequence that has ended, but for those in flight when it is
// cancelled.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_metrics.h"
#include "engine/resumption.h"
#include "engine/roster.h"
#include "engine/row_reader.h"
#include "engine/step_plan.h"
#include "engine/step_rows.h"
#include "engine/step_trace.h"
#include "speculation/drafter.h"

namespace deepinfer::engine {

struct EngineCore {
  EngineCore(models::Model& the_model, const Engine::Options& the_options, const Limits& the_limits,
             const Clock& the_clock)
      : model(the_model), options(the_options), limits(the_limits), clock(the_clock) {}

  models::Model& model;
  const Engine::Options options;
  const Limits limits;
  const Clock& clock;

  std::unique_ptr<cache::PagePool> pool;  // outlives the sequences and the prefix cache
  std::unique_ptr<cache::PrefixCache> prefixes;
  Roster roster;
  std::optional<Resumption> resumption;
  std::optional<StepPlanner> planner;
  std::optional<RowReader> reader;
  std::unique_ptr<speculation::Drafter> drafter;
  std::optional<EngineMetrics> metrics;
  StepTrace* trace = nullptr;  // null: nothing is recorded
  bool profiles = false;       // the model does, for the trace

  StepPlan plan;              // of the next step
  StepRows rows;              // of the step in flight
  models::StepOutput output;  // of it
  Result<void> computed;      // of it
  int64_t compute_begin_ns = 0, compute_end_ns = 0;
  int64_t idle_from_ns = 0;         // when the step before it was sampled; 0: none was
  std::vector<Event> events;        // to be delivered
  std::optional<Error> failure;     // of the last request that a model's error ended
  std::vector<uint64_t> cancelled;  // ids, until the next step
  Engine::StepCounters counters;

  // The caller's half.
  void apply_cancels();
  void apply_timeouts();
  void make_plan();
  // The turn. Returns whether there are rows to compute.
  bool turn();
  // Computes the rows.
  void forward();

  // One choice ends; `event` may carry its last token.
  void end(Sequence& sequence, FinishReason reason, std::string error, Event event);
  void preempt(Sequence& sequence);
  void check_invariants() const;
  size_t pages_in_use() const;

 private:
  void count_times(int64_t turn_ns);
  void record(std::string_view what, int64_t begin_ns) const;
  void profile_for_trace();
  void ask_to_end(Sequence& sequence, Ending ending);
};

// step_commit.cpp: what came out of the step in flight.
void commit_step(EngineCore& core);
// step_fill.cpp: the plan becomes rows.
void fill_step(EngineCore& core);

}  // namespace deepinfer::engine
