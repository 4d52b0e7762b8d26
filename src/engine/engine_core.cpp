#include "engine/engine_core.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

namespace deepinfer::engine {

void EngineCore::end(Sequence& sequence, FinishReason reason, std::string error, Event event) {
  if (reason != FinishReason::error) resumption->keep(sequence, cache::SnapshotKind::output);
  event.request = sequence.request().id;
  event.choice = sequence.choice;
  event.finish = reason;
  event.error = std::move(error);
  event.stats = stats_of(sequence);
  if (metrics) {
    metrics->ended(reason, event.stats, seconds_of(clock.now_ns() - sequence.added_ns));
  }
  if (drafter) drafter->end(sequence.arrival);
  roster.end(sequence);
  if (sequence.record->live == 0) planner->left(sequence.request());
  events.push_back(std::move(event));
}

void EngineCore::preempt(Sequence& sequence) {
  resumption->keep(sequence, cache::SnapshotKind::preempted);
  roster.preempt(sequence);
  ++counters.preemptions;
  if (metrics) metrics->preempted();
}

// At once, or when the step in flight has ended.
void EngineCore::ask_to_end(Sequence& sequence, Ending ending) {
  if (sequence.flight.rows > 0) {
    if (!sequence.ending) sequence.ending = std::move(ending);
  } else {
    end(sequence, ending.reason, std::move(ending.error), {});
  }
}

void EngineCore::apply_cancels() {
  for (uint64_t id : std::exchange(cancelled, {})) {
    const RequestRecord* record = roster.find(id);
    if (record == nullptr) continue;  // ended in the meantime, or cancelled twice
    const std::vector<Sequence*> choices = record->choices;
    for (Sequence* sequence : choices) {
      if (sequence != nullptr)
        ask_to_end(*sequence, {.reason = FinishReason::cancelled, .error = ""});
    }
  }
}

void EngineCore::apply_timeouts() {
  if (!roster.timed()) return;
  const int64_t now = clock.now_ns();
  std::vector<Sequence*> late;
  const auto look = [&](const std::vector<std::unique_ptr<Sequence>>& list) {
    for (const auto& sequence : list) {
      const double limit_ms = sequence->request().timeout_ms;
      if (limit_ms > 0 && static_cast<double>(now - sequence->added_ns) >= limit_ms * 1e6) {
        late.push_back(sequence.get());
      }
    }
  };
  look(roster.running());
  look(roster.waiting());
  for (Sequence* sequence : late) {
    const std::string text = "request " + std::to_string(sequence->request().id) +
                             ": timed out after " +
                             std::to_string((now - sequence->added_ns) / 1'000'000) +
                             " ms, allowed are " + std::to_string(sequence->request().timeout_ms);
    ask_to_end(*sequence, {.reason = FinishReason::error, .error = text});
  }
}

void EngineCore::make_plan() {
  const int64_t begin = clock.now_ns();
  planner->plan(plan);
  const double seconds = seconds_of(clock.now_ns() - begin);
  counters.plan_seconds += seconds;
  if (metrics) metrics->planned(seconds);
  record("plan", begin);
}

// A span of the engine's own work, up to now.
void EngineCore::record(std::string_view what, int64_t begin_ns) const {
  if (trace != nullptr) trace->span(StepTrace::Track::engine, what, begin_ns, clock.now_ns());
}

// The model's operations are only timed while somebody wants them. Nothing computes here.
void EngineCore::profile_for_trace() {
  if (trace != nullptr && profiles && !rows.empty()) {
    trace->span(StepTrace::Track::model, "forward", compute_begin_ns, compute_end_ns,
                {{"rows", static_cast<double>(rows.rows())}});
    trace->operations(compute_begin_ns, model.take_profile());
  }
  if (profiles == (trace != nullptr)) return;
  profiles = !profiles;
  model.set_profiling(profiles);
  if (!profiles) static_cast<void>(model.take_profile());
}

bool EngineCore::turn() {
  int64_t sampled_ns = 0;
  profile_for_trace();
  if (!rows.empty()) {
    const int64_t begin = clock.now_ns();  // later than the end when the plan was late
    count_times(begin);
    commit_step(*this);
    sampled_ns = clock.now_ns();
    counters.sample_seconds += seconds_of(sampled_ns - begin);
    if (metrics) metrics->sampled(seconds_of(sampled_ns - begin));
    record("sample", begin);
  }
  const int64_t fill_begin = clock.now_ns();
  fill_step(*this);
  record("fill", fill_begin);
  roster.sweep();
  idle_from_ns = sampled_ns;
  return !rows.empty();
}

// Of the step that ended. Here and not in forward(), which runs while the caller has the counters.
void EngineCore::count_times(int64_t turn_ns) {
  const double seconds = seconds_of(compute_end_ns - compute_begin_ns);
  counters.compute_seconds += seconds;
  if (metrics) metrics->computed(seconds);
  const int64_t before_ns = idle_from_ns == 0 ? 0 : compute_begin_ns - idle_from_ns;
  const double bubble = seconds_of(before_ns + turn_ns - compute_end_ns);
  counters.bubble_seconds += bubble;
  if (metrics) metrics->bubble(bubble);
}

void EngineCore::forward() {
  compute_begin_ns = clock.now_ns();
  computed = model.forward(rows.batch(), output);
  compute_end_ns = clock.now_ns();
}

size_t EngineCore::pages_in_use() const {
  std::unordered_set<cache::PageId> pages;
  for (const auto& sequence : roster.running()) {
    pages.insert(sequence->cache->pages().begin(), sequence->cache->pages().end());
  }
  return pages.size();
}

void EngineCore::check_invariants() const {
  pool->check_invariants();
  if (prefixes) prefixes->check_invariants();
  roster.check_invariants();
  check(roster.running().size() <= limits.sequences, "sequences running");
  std::unordered_set<const Sequence*> flying;
  for (const StepRows::Member& member : rows.members()) {
    check(member.sequence->flight.rows == member.rows, "rows in flight");
    check(flying.insert(member.sequence).second, "a sequence twice in a step");
  }
  for (const auto& sequence : roster.running()) {
    check(flying.contains(sequence.get()) == (sequence->flight.rows > 0), "flights");
    check(sequence->flight.rows > 0 || sequence->pending() >= 1, "running without work");
  }
  const size_t kept = prefixes ? prefixes->pages() : 0;
  const size_t held = pool->page_count() - pool->free_count();
  check(held <= pages_in_use() + kept && held >= std::max(pages_in_use(), kept), "page census");
  for (const auto& sequence : roster.waiting()) check(sequence->flight.rows == 0, "waiting flies");
}

}  // namespace deepinfer::engine
