// The plan of a step becomes rows: with the ids that are known by now, without what has ended.

#include <algorithm>

#include "engine/engine_core.h"

namespace deepinfer::engine {
namespace {

// Room for the next rows; false: it waits for pages.
bool make_room(EngineCore& core, Sequence& sequence, size_t rows) {
  const uint64_t tokens = sequence.cached() + rows;
  const size_t wanted = cache::pages_for(tokens);
  const size_t held = sequence.cache->page_count();
  if (wanted > held) core.resumption->make_free(wanted - held);
  if (sequence.cache->reserve(tokens).ok()) return true;
  core.resumption->make_free(wanted - std::min(held, wanted) + 1);
  return sequence.cache->reserve(tokens).ok();
}

// A waiting sequence gets its cache and room for its first rows.
bool start(EngineCore& core, Sequence& sequence, size_t rows) {
  if (core.roster.running().size() >= core.limits.sequences) return false;
  const bool resumes = sequence.resume->restored > 0;
  if (core.resumption->begin(sequence).ok()) {
    if (make_room(core, sequence, rows)) {
      sequence.starts_cold = false;
      core.roster.start(sequence);
      return true;
    }
    sequence.cache.reset();
  }
  // With everything else out of the way its resume point itself takes the missing page.
  if (resumes && core.roster.running().empty()) sequence.starts_cold = true;
  sequence.hint = {};
  return false;
}

struct Ready {
  Sequence* sequence;
  size_t rows;  // without drafts
  size_t drafts;
  RowKind kind;
};

// The rows that a planned sequence really has now; none: it is left out.
size_t rows_now(const StepPlan::Rows& planned) {
  const Sequence& sequence = *planned.sequence;
  const size_t pending = sequence.pending();
  if (planned.kind != RowKind::prefill) return std::min<size_t>(pending, 1);
  // It did not come as far as planned when its rows were left out before.
  return sequence.cached() == planned.first ? std::min(planned.rows, pending) : 0;
}

std::vector<Ready> ready_rows(EngineCore& core) {
  std::vector<Ready> ready;
  for (const StepPlan::Rows& planned : core.plan.rows) {
    Sequence& sequence = *planned.sequence;
    if (sequence.stage == Stage::ended || sequence.ending) continue;
    if (sequence.stage == Stage::waiting) {
      if (!sequence.resume) continue;  // preempted in this very step
      const bool started = start(core, sequence, planned.rows);
      sequence.resume.reset();
      if (started) ready.push_back({&sequence, planned.rows, 0, planned.kind});
      continue;
    }
    const size_t rows = rows_now(planned);
    if (rows == 0) continue;
    const size_t room =
        sequence.output_limit - std::min(sequence.output_limit, sequence.output_size() + 1);
    const size_t drafts = rows == sequence.pending() ? std::min(planned.drafts, room) : 0;
    if (make_room(core, sequence, rows + drafts)) {
      ready.push_back({&sequence, rows, drafts, planned.kind});
    } else if (drafts > 0 && make_room(core, sequence, rows)) {
      ready.push_back({&sequence, rows, 0, planned.kind});
    }
  }
  return ready;
}

// Asks the drafter for all sequences at once. Without an answer they just decode.
void draft(EngineCore& core, std::span<const Ready> ready) {
  std::vector<speculation::DraftTask> tasks;
  for (const Ready& one : ready) {
    Sequence& sequence = *one.sequence;
    sequence.draft.clear();
    if (one.drafts == 0) continue;
    tasks.push_back({.sequence = sequence.arrival,
                     .ids = sequence.ids,
                     .most = one.drafts,
                     .cache = &*sequence.cache,
                     .draft = &sequence.draft});
  }
  if (tasks.empty()) return;
  const Result<void> drafted = core.drafter->draft(tasks);
  for (const speculation::DraftTask& task : tasks) {
    if (!drafted.ok()) task.draft->clear();
    check(task.draft->ids.size() <= task.most, "more drafts than asked for");
  }
}

void add_rows(EngineCore& core, const Ready& ready, int64_t now, size_t& prompt_rows) {
  Sequence& sequence = *ready.sequence;
  Engine::StepCounters& counters = core.counters;
  const bool prompt = sequence.pending() > 1;
  core.rows.add(sequence, ready.rows);
  const size_t drafts = sequence.draft.ids.size();
  sequence.flight = {.rows = ready.rows + drafts,
                     .drafts = drafts,
                     .samples = ready.rows == sequence.pending() &&
                                sequence.output_limit > sequence.output_size()};
  if (sequence.first_row_ns < 0) {
    sequence.first_row_ns = now;
    if (core.metrics) {
      core.metrics->queued(seconds_of(now - sequence.added_ns));
      core.metrics->started(sequence.prompt_size(), sequence.cached_tokens);
    }
  }
  core.planner->charge(sequence, ready.rows + drafts);
  if (prompt) prompt_rows += ready.rows;
  (prompt ? counters.prefill_rows : counters.decode_rows) += ready.rows;
  counters.verify_rows += drafts;
}

}  // namespace

void fill_step(EngineCore& core) {
  core.rows.clear();
  for (Sequence* victim : core.plan.preempt) {
    if (victim->runs() && !victim->ending) core.preempt(*victim);
  }
  const std::vector<Ready> ready = ready_rows(core);
  draft(core, ready);
  const Engine::StepCounters before = core.counters;
  const int64_t now = core.clock.now_ns();
  size_t prompt_rows = 0;
  for (const Ready& one : ready) add_rows(core, one, now, prompt_rows);
  core.planner->filled(prompt_rows);
  core.plan.clear();
  if (core.rows.empty()) return;
  ++core.counters.steps;
  core.counters.rows += core.rows.rows();
  if (!core.metrics) return;
  const auto pages = static_cast<double>(core.pool->page_count());
  const size_t free = core.pool->free_count();
  core.metrics->step({.prefill_rows = core.counters.prefill_rows - before.prefill_rows,
                      .decode_rows = core.counters.decode_rows - before.decode_rows,
                      .verify_rows = core.counters.verify_rows - before.verify_rows,
                      .running = core.roster.running().size(),
                      .waiting = core.roster.waiting().size(),
                      .cache_usage = 1.0 - static_cast<double>(free) / pages});
}

}  // namespace deepinfer::engine
