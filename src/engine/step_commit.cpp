// What came out of a step: tokens, scores, ends. When the step failed, each of its sequences is
// computed alone: a failed step left every cache as it was (models/model.h), and those that fail
// alone too end with the error.

#include <algorithm>
#include <utility>

#include "engine/engine_core.h"

namespace deepinfer::engine {
namespace {

using Member = StepRows::Member;

// Choices that wait for this sequence to finish the prompt that they share.
bool has_followers(const Sequence& sequence) {
  if (sequence.choice != 0 || sequence.output_size() > 0) return false;
  const auto& choices = sequence.record->choices;
  return std::ranges::any_of(choices,
                             [](const Sequence* one) { return one != nullptr && one->follows; });
}

struct MemberTasks {
  const Member* member = nullptr;
  size_t first = 0;      // of the tasks
  size_t own = 0;        // scores, then tokens
  size_t followers = 0;  // behind them
};

// The rows of one member that are read; its drafts are appended to its ids.
MemberTasks collect(const StepRows& rows, const Member& member, const float* logits, size_t vocab,
                    std::vector<RowTask>& tasks) {
  Sequence& sequence = *member.sequence;
  MemberTasks of = {.member = &member, .first = tasks.size()};
  const size_t known = sequence.ids.size();
  for (size_t r = 0; r < member.rows; ++r) {
    if (!rows.wants(member.first_row + r)) continue;
    const uint64_t position = member.first + r;
    RowTask task;
    task.sequence = &sequence;
    task.logits = {logits, vocab};
    task.position = position;
    logits += vocab;
    task.scores = position + 1 < known;
    if (!task.scores) {
      task.drafts_before = position + 1 - known;
      if (task.drafts_before < member.drafts) task.draft = sequence.draft.ids[task.drafts_before];
    }
    tasks.push_back(std::move(task));
  }
  of.own = tasks.size() - of.first;
  if (sequence.flight.samples && has_followers(sequence)) {
    const RowTask last = tasks.back();
    for (const Sequence* follower : sequence.record->choices) {
      if (follower == nullptr || !follower->follows) continue;
      tasks.push_back(last);
      tasks.back().sequence = follower;
      ++of.followers;
    }
  }
  sequence.ids.insert(sequence.ids.end(), sequence.draft.ids.begin(), sequence.draft.ids.end());
  return of;
}

void take_token(EngineCore& core, Sequence& sequence, const RowTask& task, bool drafted,
                Event& event) {
  const int64_t now = core.clock.now_ns();
  if (sequence.output_size() == 0) {
    sequence.first_token_ns = now;
    if (core.metrics) core.metrics->first_token(seconds_of(now - sequence.added_ns));
  } else {
    if (core.metrics) core.metrics->next_token(seconds_of(now - sequence.last_token_ns));
    sequence.longest_gap_ns = std::max(sequence.longest_gap_ns, now - sequence.last_token_ns);
  }
  if (core.metrics) core.metrics->token();
  sequence.last_token_ns = now;
  sequence.ids.push_back(task.token.id);
  sequence.logprob_sum += task.token.logprob;
  event.request = sequence.request().id;
  event.choice = sequence.choice;
  event.has_token = true;
  event.token = task.token;
  event.drafted = drafted;
}

// A new token and what it means; `event` may carry prompt scores already. False: the sequence
// ended.
bool accept_token(EngineCore& core, Sequence& sequence, const RowTask& task, bool drafted,
                  Event event) {
  if (task.error) {
    core.end(sequence, FinishReason::error, task.error->text(), std::move(event));
    return false;
  }
  take_token(core, sequence, task, drafted, event);
  const bool stops = stops_now(sequence);
  if (stops || sequence.output_size() >= sequence.output_limit) {
    core.end(sequence, stops ? FinishReason::stop : FinishReason::length, "", std::move(event));
    return false;
  }
  core.events.push_back(std::move(event));
  return true;
}

// The choices that waited go their own ways from here: those that find room at once, the others as
// ordinary waiting sequences.
void release_followers(EngineCore& core, Sequence& leader, std::span<RowTask> tasks) {
  for (RowTask& task : tasks) {
    Sequence& follower = const_cast<Sequence&>(*task.sequence);
    follower.follows = false;
    if (core.roster.running().size() >= core.limits.sequences || follower.ending) continue;
    core.resumption->make_free(1);  // for the copy of the last page
    Result<cache::SequenceCache> forked = leader.cache->fork();
    if (!forked.ok()) continue;
    follower.cache.emplace(std::move(forked).value());
    follower.start = leader.start;
    follower.approximate = leader.approximate;
    follower.shared_tokens = leader.cached() / cache::kTokensPerPage * cache::kTokensPerPage;
    follower.resumed = "fork";
    follower.cached_tokens = follower.prompt_size();
    follower.first_row_ns = leader.first_row_ns;
    core.roster.join(follower);
    accept_token(core, follower, task, false, {});
  }
}

// Scores of the prompt into `event`; false: the sequence ended.
bool take_scores(EngineCore& core, Sequence& sequence, std::span<RowTask> tasks, Event& event) {
  for (RowTask& task : tasks) {
    if (task.error) {
      core.end(sequence, FinishReason::error, task.error->text(), std::move(event));
      return false;
    }
    if (event.prompt_scores.empty()) event.prompt_first = task.position + 1;
    event.prompt_scores.push_back(std::move(task.token));
    sequence.scored = task.position + 2;
  }
  return true;
}

// Tokens of the last rows: as long as the drafts stand, and one more.
void take_tokens(EngineCore& core, Sequence& sequence, std::span<RowTask> tasks, Event event) {
  const size_t drafts = tasks.size() - 1;
  size_t stood = 0;
  bool lives = true;
  for (const RowTask& task : tasks) {
    const bool stands = task.draft >= 0 && task.accepted && !task.error;
    if (stands) ++stood;
    if (stands) ++sequence.accepted;
    lives = accept_token(core, sequence, task, stands, std::exchange(event, {}));
    if (!lives || !stands) break;
    sequence.cache->set_length(sequence.ids.size());
  }
  core.counters.accepted_rows += stood;
  if (!lives) return;
  // The row of the last draft that stood was computed, the newest token was not.
  sequence.cache->set_length(sequence.ids.size() - 1);
  if (drafts > 0) sequence.gate.observe(drafts, stood);
  if (sequence.request().drafting != Drafting::none) {
    core.drafter->committed(sequence.arrival, sequence.ids);
  }
}

void commit_member(EngineCore& core, const MemberTasks& of, std::vector<RowTask>& tasks) {
  const Member& member = *of.member;
  Sequence& sequence = *member.sequence;
  sequence.ids.resize(sequence.ids.size() - member.drafts);
  sequence.drafted += member.drafts;
  sequence.flight = {};
  sequence.draft.clear();
  sequence.cache->set_length(member.first + member.rows - member.drafts);
  if (sequence.ending) {
    core.counters.discarded_rows += member.rows;
    return core.end(sequence, sequence.ending->reason, sequence.ending->error, {});
  }
  core.resumption->advanced(sequence);
  const std::span<RowTask> own = std::span(tasks).subspan(of.first, of.own);
  const auto first_token =
      std::ranges::find_if(own, [](const RowTask& task) { return !task.scores; });
  const auto scores = static_cast<size_t>(first_token - own.begin());
  Event event{.request = sequence.request().id, .choice = sequence.choice};
  if (!take_scores(core, sequence, own.first(scores), event)) return;
  const bool samples = scores < own.size();
  if (!samples) {
    if (sequence.pending() == 0) {
      core.end(sequence, FinishReason::length, "", std::move(event));
    } else if (!event.prompt_scores.empty()) {
      core.events.push_back(std::move(event));
    }
    return;
  }
  if (sequence.stage == Stage::prefilling) core.roster.decode(sequence);
  release_followers(core, sequence, std::span(tasks).subspan(of.first + of.own, of.followers));
  take_tokens(core, sequence, own.subspan(scores), std::move(event));
}

// Members [first, first + count) of the step; the output holds their rows from `logits_row` on.
void commit_members(EngineCore& core, size_t first, size_t count, size_t logits_row) {
  const size_t vocab = core.model.config().vocab;
  const std::vector<Member>& members = core.rows.members();
  std::vector<MemberTasks> of;
  std::vector<RowTask> tasks;
  for (size_t i = first; i < first + count; ++i) {
    const size_t row = members[i].first_logits - logits_row;
    of.push_back(collect(core.rows, members[i], core.output.row(row, vocab), vocab, tasks));
  }
  core.reader->read(tasks);
  for (const MemberTasks& one : of) commit_member(core, one, tasks);
}

// What was restored may be at fault: once more without it.
void retry_cold(EngineCore& core, Sequence& sequence) {
  sequence.restored = 0;
  sequence.starts_cold = true;
  sequence.resumed = "cold";
  sequence.not_reused = "the resume point failed";
  sequence.cached_tokens = 0;
  core.roster.preempt(sequence);
}

void isolate(EngineCore& core) {
  if (core.metrics) core.metrics->failed_step();
  const std::vector<Member>& members = core.rows.members();
  for (size_t i = 0; i < members.size(); ++i) {
    Sequence& sequence = *members[i].sequence;
    const Result<void> again = core.model.forward(core.rows.batch_of(i), core.output);
    ++core.counters.steps;
    core.counters.rows += members[i].rows;
    if (again.ok()) {
      commit_members(core, i, 1, members[i].first_logits);
      continue;
    }
    sequence.flight = {};
    sequence.draft.clear();
    if (sequence.restored > 0 && !sequence.ending) {
      retry_cold(core, sequence);
      continue;
    }
    core.failure = again.error();
    core.end(sequence, FinishReason::error, again.error().text(), {});
  }
}

}  // namespace

void commit_step(EngineCore& core) {
  if (!core.computed.ok()) return isolate(core);
  check(core.output.wanted_rows == core.rows.wanted(), "rows of logits");
  core.planner->cost.observe(core.rows.rows(), core.rows.context_tokens(),
                             seconds_of(core.compute_end_ns - core.compute_begin_ns));
  commit_members(core, 0, core.rows.members().size(), 0);
}

}  // namespace deepinfer::engine
