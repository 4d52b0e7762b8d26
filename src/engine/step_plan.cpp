#include "engine/step_plan.h"

#include <algorithm>

namespace deepinfer::engine {
namespace {

// More waiting sequences than this are not looked at in one plan. An eighth are those that come
// first by their age, the others first by priority and by what their user was served.
constexpr size_t kWaitingInPlan = 512;
constexpr size_t kAgedInPlan = kWaitingInPlan / 8;
// Look-ups in the prefix cache for those that do not start yet.
constexpr size_t kHintsPerPlan = 4;

uint64_t points_distance(const std::vector<SnapshotPoint>& points, uint64_t position) {
  for (const SnapshotPoint& point : points) {
    if (point.position > position) return point.position - position;
  }
  return UINT64_MAX;
}

// The image that begins at `position`, 0: none does.
size_t image_at(const Sequence& sequence, uint64_t position) {
  for (const PromptSpan& span : sequence.record->spans) {
    if (span.start == position) return span.count;
  }
  return 0;
}

}  // namespace

SchedulerEntry StepPlanner::entry_of(const Sequence& sequence, size_t index) {
  const Request& request = sequence.request();
  const bool waits = sequence.stage == Stage::waiting;
  SchedulerEntry entry;
  entry.index = index;
  entry.arrival = sequence.arrival;
  entry.added_ns = sequence.added_ns;
  entry.priority = request.priority;
  if (request.ttft_target_ms > 0 && sequence.output_size() == 0) {
    entry.deadline_ns = sequence.added_ns + static_cast<int64_t>(request.ttft_target_ms * 1e6);
  }
  entry.user = request.user;
  entry.weight = request.weight;
  entry.context = waits ? sequence.hint.tokens : sequence.cached_after();
  entry.pending = sequence.ids_after() - entry.context;
  entry.phase = waits ? Phase::waiting : entry.pending == 1 ? Phase::decoding : Phase::prefilling;
  if (!waits) {
    const uint64_t point = points_distance(sequence.points, entry.context);
    entry.most_rows = point == UINT64_MAX ? 0 : point;
    entry.pages = sequence.cache->page_count() -
                  std::min<size_t>(sequence.cache->page_count(),
                                   sequence.shared_tokens / cache::kTokensPerPage);
    entry.tokens_reserved = sequence.cache->page_count() * cache::kTokensPerPage;
    entry.restore_tokens = entry.context - std::min(entry.context, sequence.shared_tokens);
  } else {
    entry.tokens_reserved = sequence.hint.shared_tokens;
    entry.pinned_pages = sequence.hint.pinned_pages;
  }
  entry.least_rows = std::max<size_t>(1, image_at(sequence, entry.context));
  entry.logits_rows_all =
      request.want_prompt_logprobs && sequence.choice == 0 &&
              std::max<uint64_t>(entry.context + 1, sequence.scored) < sequence.prompt_size()
          ? 1
          : 0;
  entry.preemptions = sequence.preemptions;
  return entry;
}

size_t StepPlanner::drafts_of(Sequence& sequence) const {
  const Request& request = sequence.request();
  if (request.drafting == Drafting::none || sequence.stage != Stage::decoding) return 0;
  const size_t generated = sequence.output_size() + (sequence.flight.samples ? 1 : 0);
  const size_t room = sequence.output_limit - std::min(sequence.output_limit, generated + 1);
  const size_t most = std::min({request.most_drafts, model_.rollback_rows(), room});
  return most == 0 ? 0 : sequence.gate.drafts(most, cost_of_row_);
}

void StepPlanner::add_running() {
  for (const auto& sequence : roster_.running()) {
    if (sequence->ending || sequence->ends_after()) continue;
    SchedulerEntry entry = entry_of(*sequence, entries_.size());
    if (entry.phase == Phase::decoding) {
      entry.drafts = static_cast<uint32_t>(drafts_of(*sequence));
    } else {
      prompts_wait_ = true;
    }
    entries_.push_back(entry);
    sequences_.push_back(sequence.get());
  }
}

// Of sequences_ from `first` on, by arrival, keeps kWaitingInPlan.
void StepPlanner::keep_urgent(size_t first) {
  struct Rank {
    int64_t aged;
    int priority;
    double served;
    Sequence* sequence;
  };
  std::vector<Rank> ranks;
  ranks.reserve(sequences_.size() - first);
  const int64_t ageing_ns = SchedulerBudget{}.ageing_ns;
  for (size_t i = first; i < sequences_.size(); ++i) {
    const Request& request = sequences_[i]->request();
    ranks.push_back({request.priority * ageing_ns - sequences_[i]->added_ns, request.priority,
                     shares_.served(request.user), sequences_[i]});
  }
  const auto aged = ranks.begin() + kAgedInPlan;
  std::nth_element(ranks.begin(), aged, ranks.end(), [](const Rank& a, const Rank& b) {
    if (a.aged != b.aged) return a.aged > b.aged;
    return a.sequence->arrival < b.sequence->arrival;
  });
  const auto end = ranks.begin() + kWaitingInPlan;
  std::nth_element(aged, end, ranks.end(), [](const Rank& a, const Rank& b) {
    if (a.priority != b.priority) return a.priority > b.priority;
    if (a.served != b.served) return a.served < b.served;
    return a.sequence->arrival < b.sequence->arrival;
  });
  std::sort(ranks.begin(), end,
            [](const Rank& a, const Rank& b) { return a.sequence->arrival < b.sequence->arrival; });
  sequences_.resize(first + kWaitingInPlan);
  for (size_t i = 0; i < kWaitingInPlan; ++i) sequences_[first + i] = ranks[i].sequence;
}

void StepPlanner::add_waiting() {
  // Without a free slot nobody starts, so nobody needs to know.
  size_t hints = roster_.running().size() < limits_.sequences ? 0 : kHintsPerPlan;
  const size_t first = sequences_.size();
  const bool full = first >= limits_.sequences;  // one is enough to say that some wait
  for (const auto& sequence : roster_.waiting()) {
    if (sequence->follows || sequence->ending) continue;
    sequences_.push_back(sequence.get());
    if (full) break;
  }
  if (sequences_.size() - first > kWaitingInPlan) keep_urgent(first);
  for (size_t i = first; i < sequences_.size(); ++i) {
    if (hints < kHintsPerPlan && resumption_.hint(*sequences_[i])) ++hints;
    entries_.push_back(entry_of(*sequences_[i], i));
    prompts_wait_ = true;
  }
}

// The rows of one sequence, cut where its state is wanted and never inside of an image.
void StepPlanner::add_rows(const PlannedRows& planned, StepPlan& plan) {
  Sequence& sequence = *sequences_[planned.index];
  StepPlan::Rows rows = {.sequence = &sequence,
                         .first = sequence.cached_after(),
                         .rows = planned.rows - planned.drafts,
                         .drafts = planned.drafts,
                         .kind = planned.kind};
  const std::vector<SnapshotPoint>* points = &sequence.points;
  if (sequence.stage == Stage::waiting) {
    if (!sequence.resume) sequence.resume = resumption_.find(sequence);
    rows.first = sequence.resume->tokens;
    points = &sequence.resume->points;
  }
  const size_t pending = sequence.ids_after() - rows.first;
  rows.rows = std::min<size_t>({rows.rows, pending, points_distance(*points, rows.first)});
  if (rows.rows > 1 || pending > 1) {
    rows.rows = cut_chunk(rows.first, rows.rows, sequence.record->spans, sequence.ids_after(),
                          rows.rows, false);
  }
  if (rows.rows > 0) {
    plan.rows.push_back(rows);
  } else if (sequence.stage == Stage::waiting) {
    // The hint was old. A point that nobody uses would keep its pages from everybody.
    sequence.resume.reset();
    sequence.hint = {};
  }
}

void StepPlanner::plan(StepPlan& plan) {
  plan_once(plan);
  if (!plan.empty() || entries_.empty()) return;
  const bool computes = std::ranges::any_of(
      roster_.running(), [](const auto& sequence) { return sequence->flight.rows > 0; });
  if (!computes && resumption_.forget_all()) plan_once(plan);
}

void StepPlanner::plan_once(StepPlan& plan) {
  plan.clear();
  entries_.clear();
  sequences_.clear();
  prompts_wait_ = false;
  const size_t running = roster_.running().size();
  if (cost.known() && running > 0) {
    const double one = cost.seconds(running, 0);
    cost_of_row_ =
        one > 0 ? (cost.seconds(2 * running, 0) - one) / one / static_cast<double>(running) : 0;
  }
  add_running();
  add_waiting();
  if (entries_.empty()) return;
  const SchedulerBudget budget = {.rows = limits_.rows,
                                  .logits_rows = limits_.logits_rows,
                                  .sequences = limits_.sequences,
                                  .free_pages = resumption_.free_pages(),
                                  .target_seconds = options_.target_step_ms * 1e-3,
                                  .prefill_every = options_.prefill_every,
                                  .steps_without_prefill = steps_without_prefill_,
                                  .started = started_};
  SchedulerPlan scheduled = plan_step(entries_, budget, shares_, cost, clock_.now_ns());
  for (size_t index : scheduled.preempt) plan.preempt.push_back(sequences_[index]);
  for (const PlannedRows& planned : scheduled.rows) add_rows(planned, plan);
  started_ += scheduled.admit.size();
  plan.waits_because = std::move(scheduled.waits_because);
}

void StepPlanner::filled(size_t prompt_rows) {
  steps_without_prefill_ = prompt_rows > 0 || !prompts_wait_ ? 0 : steps_without_prefill_ + 1;
}

void StepPlanner::charge(const Sequence& sequence, size_t rows) {
  const Request& request = sequence.request();
  shares_.charge(request.user, static_cast<double>(rows), request.weight);
}

void StepPlanner::arrived(const Request& request) {
  ++users_[request.user];
  shares_.present(request.user);
}

void StepPlanner::left(const Request& request) {
  const auto found = users_.find(request.user);
  if (--found->second > 0) return;
  users_.erase(found);
  shares_.forget(request.user);
}

}  // namespace deepinfer::engine
