#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

#include "cache/layout.h"

namespace deepinfer::engine {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

SchedulerEntry decoding(size_t index, uint64_t context = 100) {
  return {.index = index,
          .phase = Phase::decoding,
          .arrival = index,
          .context = context,
          .pages = cache::pages_for(context),
          .tokens_reserved = cache::pages_for(context) * cache::kTokensPerPage,
          .restore_tokens = context};
}
SchedulerEntry prefilling(size_t index, uint64_t pending, uint64_t context = 0) {
  SchedulerEntry entry = decoding(index, context);
  entry.phase = Phase::prefilling;
  entry.pending = pending;
  return entry;
}
SchedulerEntry waiting(size_t index, uint64_t pending) {
  return {.index = index, .phase = Phase::waiting, .arrival = index, .pending = pending};
}

struct Planned {
  std::map<size_t, PlannedRows> rows;
  SchedulerPlan plan;
  size_t of(size_t index) const {
    const auto found = rows.find(index);
    return found == rows.end() ? 0 : found->second.rows;
  }
};

Planned plan(const std::vector<SchedulerEntry>& entries, const SchedulerBudget& budget,
             const FairShare& shares = {}, const StepCost& cost = {}, int64_t now = 0) {
  Planned planned;
  planned.plan = plan_step(entries, budget, shares, cost, now);
  for (const PlannedRows& rows : planned.plan.rows) {
    EXPECT_TRUE(planned.rows.emplace(rows.index, rows).second) << "planned twice";
  }
  return planned;
}

constexpr SchedulerBudget kRoomy = {
    .rows = 512, .logits_rows = 512, .sequences = 64, .free_pages = 10'000};

TEST(Scheduler, DecodeRowsAndPromptsShareAStep) {
  const Planned planned =
      plan({decoding(0), decoding(1), prefilling(2, 1000), waiting(3, 5)}, kRoomy);
  EXPECT_EQ(planned.of(0), 1u);
  EXPECT_EQ(planned.of(1), 1u);
  EXPECT_EQ(planned.of(3), 5u);
  EXPECT_EQ(planned.of(2), 512u - 7);
  EXPECT_EQ(planned.plan.admit, std::vector<size_t>{3});
  EXPECT_EQ(planned.plan.decode_rows, 2u);
  EXPECT_EQ(planned.plan.prefill_rows, 510u);
  EXPECT_TRUE(planned.plan.waits_because.empty());
}

TEST(Scheduler, AShortPromptIsNotStuckBehindALongOne) {
  SchedulerEntry giant = prefilling(0, 128'000);
  giant.added_ns = -60 * kSecond;  // far more urgent by its age
  const Planned planned = plan({giant, waiting(1, 40)}, kRoomy);
  EXPECT_EQ(planned.of(1), 40u);
  EXPECT_EQ(planned.of(0), 472u);
}

TEST(Scheduler, ShorterRestFirstThenArrival) {
  SchedulerBudget budget = kRoomy;
  budget.rows = 100;
  budget.prefill_floor_rows = 100;
  EXPECT_EQ(plan({waiting(0, 300), waiting(1, 200)}, budget).of(1), 100u);
  EXPECT_EQ(plan({waiting(0, 300), waiting(1, 300)}, budget).of(0), 100u);
}

TEST(Scheduler, PriorityThenDeadlineThenFairShare) {
  SchedulerBudget budget = kRoomy;
  budget.rows = 64;
  budget.prefill_floor_rows = 64;
  SchedulerEntry plain = waiting(0, 100), urgent = waiting(1, 500);
  urgent.priority = 1;
  EXPECT_EQ(plan({plain, urgent}, budget).of(1), 64u);
  SchedulerEntry deadline = waiting(1, 500);
  deadline.deadline_ns = kSecond;
  EXPECT_EQ(plan({plain, deadline}, budget).of(1), 64u);
  FairShare shares;
  shares.present(1);
  shares.present(2);
  shares.charge(1, 500, 1);
  plain.user = 1;
  SchedulerEntry other = waiting(1, 500);
  other.user = 2;
  EXPECT_EQ(plan({plain, other}, budget, shares).of(1), 64u);
}

// One low request against a stream of high ones that would take every row.
TEST(Scheduler, AgeingBoundsTheWait) {
  SchedulerBudget budget = kRoomy;
  budget.rows = 64;
  budget.sequences = 4;
  budget.prefill_floor_rows = 64;
  SchedulerEntry low = waiting(0, 64);
  low.priority = -2;
  int64_t now = 0;
  for (int step = 1; step < 100; ++step) {
    now += kSecond / 2;
    SchedulerEntry high = waiting(static_cast<size_t>(step), 64);
    high.priority = 2;
    high.added_ns = now;
    if (plan({low, high}, budget, {}, {}, now).of(0) == 0) continue;
    // Four priorities, two seconds each.
    EXPECT_LE(now, 9 * kSecond);
    return;
  }
  FAIL() << "never served";
}

// Two users, one with ten times the requests: each gets half of the rows.
TEST(Scheduler, UsersShareEvenly) {
  SchedulerBudget budget = kRoomy;
  budget.rows = 64;
  budget.prefill_floor_rows = 64;
  FairShare shares;
  shares.present(1);
  shares.present(2);
  std::map<uint64_t, size_t> served;
  std::vector<SchedulerEntry> entries;
  for (size_t i = 0; i < 22; ++i) {
    entries.push_back(prefilling(i, 64'000));
    entries.back().user = i % 11 == 0 ? 1 : 2;
  }
  for (int step = 0; step < 200; ++step) {
    for (const auto& [index, rows] : plan(entries, budget, shares).rows) {
      served[entries[index].user] += rows.rows;
      shares.charge(entries[index].user, static_cast<double>(rows.rows), 1);
    }
  }
  EXPECT_NEAR(static_cast<double>(served[1]), static_cast<double>(served[2]),
              0.05 * static_cast<double>(served[2]));
}

TEST(FairShare, ANewcomerSavesNoTurns) {
  FairShare shares;
  shares.charge(1, 1000, 2);
  shares.charge(2, 800, 1);
  shares.present(3);
  EXPECT_EQ(shares.served(1), 500);
  EXPECT_EQ(shares.served(3), 500);
  shares.forget(1);
  EXPECT_EQ(shares.served(1), 0);
}

StepCost measured() {
  StepCost cost;
  for (size_t rows : {1, 16, 128, 512}) {
    cost.observe(rows, 0, 0.010 + 0.001 * static_cast<double>(rows));
  }
  return cost;
}

TEST(Scheduler, ATargetBoundsPromptRowsBesideDecodingOnes) {
  SchedulerBudget budget = kRoomy;
  budget.target_seconds = 0.050;
  budget.steps_without_prefill = 0;
  const StepCost cost = measured();
  const Planned planned = plan({decoding(0), prefilling(1, 5000)}, budget, {}, cost);
  EXPECT_GT(planned.of(1), 20u);
  EXPECT_LE(planned.plan.expected_seconds, 0.050);
  // Alone it has the whole step.
  EXPECT_EQ(plan({prefilling(1, 5000)}, budget, {}, cost).of(1), 512u);
}

TEST(Scheduler, PromptsHaveTheirFloorWhateverTheTargetSays) {
  SchedulerBudget budget = kRoomy;
  budget.target_seconds = 0.001;  // less than any step
  const StepCost cost = measured();
  size_t rows = 0, without = 0;
  for (int step = 0; step < 40; ++step) {
    budget.steps_without_prefill = static_cast<uint32_t>(without);
    const Planned planned = plan({decoding(0), prefilling(1, 5000)}, budget, {}, cost);
    EXPECT_EQ(planned.of(0), 1u);
    rows += planned.of(1);
    without = planned.of(1) > 0 ? 0 : without + 1;
    EXPECT_LT(without, budget.prefill_every);
  }
  EXPECT_EQ(rows, 10 * budget.prefill_floor_rows);
}

TEST(Scheduler, DraftsTakeWhatIsLeftFirstDraftsFirst) {
  SchedulerBudget budget = kRoomy;
  budget.rows = 8;
  std::vector<SchedulerEntry> entries = {decoding(0), decoding(1), decoding(2)};
  for (SchedulerEntry& entry : entries) entry.drafts = 5;
  const Planned planned = plan(entries, budget);
  EXPECT_EQ(planned.of(0), 3u);
  EXPECT_EQ(planned.of(1), 3u);
  EXPECT_EQ(planned.of(2), 2u);
  EXPECT_EQ(planned.plan.verify_rows, 5u);
  EXPECT_EQ(planned.rows.at(0).kind, RowKind::verify);
  EXPECT_EQ(planned.rows.at(0).drafts, 2u);
  // The prompts' floor goes before drafts when it is due.
  entries.push_back(prefilling(3, 100));
  budget.steps_without_prefill = 3;
  budget.prefill_floor_rows = 5;
  const Planned due = plan(entries, budget);
  EXPECT_EQ(due.of(3), 5u);
  EXPECT_EQ(due.plan.verify_rows, 0u);
}

TEST(Scheduler, DraftsNeverPushAnyoneOut) {
  SchedulerBudget budget = kRoomy;
  budget.free_pages = 0;
  std::vector<SchedulerEntry> entries = {decoding(0, 126), decoding(1, 10)};
  entries[0].drafts = entries[1].drafts = 4;
  const Planned planned = plan(entries, budget);
  EXPECT_EQ(planned.of(0), 2u);  // to the end of its page
  EXPECT_EQ(planned.of(1), 5u);
  EXPECT_TRUE(planned.plan.preempt.empty());
}

TEST(Scheduler, LogitsRowsAreCounted) {
  SchedulerBudget budget = kRoomy;
  budget.logits_rows = 10;
  SchedulerEntry scored = prefilling(1, 300);
  scored.logits_rows_all = 1;
  EXPECT_EQ(plan({decoding(0), scored}, budget).of(1), 9u);
  // The last row of a prompt has logits too.
  budget.logits_rows = 1;
  EXPECT_EQ(plan({decoding(0), prefilling(1, 30)}, budget).of(1), 29u);
}

TEST(Scheduler, OneThatDoesNotFitBlocksNobodyUntilItHasWaitedLong) {
  SchedulerBudget budget = kRoomy;
  budget.free_pages = 10;
  std::vector<SchedulerEntry> entries = {decoding(0), waiting(1, 128 * 30), waiting(2, 100)};
  const Planned planned = plan(entries, budget);
  EXPECT_EQ(planned.plan.admit, std::vector<size_t>{2});
  EXPECT_EQ(planned.plan.waits_because, "30 pages needed, 8 can be had");
  entries[2].added_ns = 6 * kSecond;
  EXPECT_TRUE(plan(entries, budget, {}, {}, 6 * kSecond).plan.admit.empty());
}

TEST(Scheduler, WhatRunningPromptsStillNeedIsNotGivenAway) {
  SchedulerBudget budget = kRoomy;
  budget.rows = 64;
  budget.free_pages = 10;
  // The running one will need eight more pages; one is kept for growth.
  const std::vector<SchedulerEntry> entries = {prefilling(0, 128 * 8), waiting(1, 128 * 2)};
  EXPECT_TRUE(plan(entries, budget).plan.admit.empty());
  budget.free_pages = 11;
  EXPECT_EQ(plan(entries, budget).plan.admit.size(), 1u);
}

TEST(Scheduler, SequencesAreBounded) {
  SchedulerBudget budget = kRoomy;
  budget.sequences = 2;
  const Planned planned = plan({decoding(0), waiting(1, 10), waiting(2, 10)}, budget);
  EXPECT_EQ(planned.plan.admit.size(), 1u);
  EXPECT_EQ(planned.plan.waits_because, "2 sequences run, the most at once");
}

TEST(Scheduler, TheCheapestOfTheLowestPriorityGivesWay) {
  SchedulerBudget budget = kRoomy;
  budget.free_pages = 0;
  std::vector<SchedulerEntry> entries = {decoding(0, 128), decoding(1, 300), decoding(2, 200),
                                         decoding(3, 20)};
  entries[3].priority = 1;
  EXPECT_EQ(plan(entries, budget).plan.preempt, std::vector<size_t>{0});
  // What a snapshot keeps is cheap to restore.
  entries[1].restore_tokens = 5;
  EXPECT_EQ(plan(entries, budget).plan.preempt, std::vector<size_t>{1});
  // One that gave way often is spared.
  entries[1].preemptions = 3;
  EXPECT_EQ(plan(entries, budget).plan.preempt, std::vector<size_t>{0});
}

TEST(Scheduler, TheOldestOfTheHighestPriorityStays) {
  SchedulerBudget budget = kRoomy;
  budget.free_pages = 0;
  const Planned planned = plan({decoding(0, 128), decoding(1, 128), decoding(2, 300)}, budget);
  EXPECT_EQ(planned.of(0), 1u);
  EXPECT_EQ(planned.plan.preempt, std::vector<size_t>{1});
  EXPECT_EQ(planned.of(2), 1u);
}

TEST(Scheduler, PromptsThatHoldEachOthersPagesGoOn) {
  SchedulerBudget budget = kRoomy;
  budget.free_pages = 0;
  const Planned planned = plan({prefilling(0, 500, 256), prefilling(1, 500, 128)}, budget);
  EXPECT_EQ(planned.plan.preempt, std::vector<size_t>{1});
  EXPECT_EQ(planned.of(0), 128u);
}

TEST(Scheduler, ImagesRunAsOne) {
  SchedulerBudget budget = kRoomy;
  budget.rows = 100;
  SchedulerEntry image = prefilling(1, 150, 10);
  image.least_rows = image.most_rows = 80;
  EXPECT_EQ(plan({decoding(0), image}, budget).of(1), 80u);
  budget.rows = 80;
  EXPECT_EQ(plan({decoding(0), image}, budget).of(1), 0u);
  budget.steps_without_prefill = 3;
  const Planned alone = plan({decoding(0), image}, budget);
  EXPECT_EQ(alone.of(1), 80u);
  EXPECT_EQ(alone.of(0), 0u);
}

TEST(Scheduler, WhatCannotRunIsLeftAlone) {
  SchedulerEntry image = waiting(0, 10);
  image.runnable = false;
  const Planned planned = plan({image, waiting(1, 10)}, kRoomy);
  EXPECT_EQ(planned.plan.admit, std::vector<size_t>{1});
}

// A small world of sequences and pages, driven by a seed: every rule is checked in every step.
class World {
 public:
  explicit World(uint64_t seed) : random_(seed) {
    budget_.rows = pick(8, 200);
    budget_.sequences = pick(1, std::min<uint64_t>(budget_.rows, 12));
    budget_.logits_rows = pick(budget_.sequences, budget_.rows);
    budget_.prefill_floor_rows = pick(1, 16);
    budget_.target_seconds = pick(0, 1) == 0 ? 0 : 1e-3 * static_cast<double>(pick(1, 60));
    pages_ = pick(8, 60);
    context_ = pages_ * cache::kTokensPerPage;
    cost_ = measured();
  }

  void step() {
    while (entries_.size() < 20 && pick(0, 3) == 0) arrive();
    budget_.free_pages = pages_ - pages_held();
    budget_.steps_without_prefill = without_prefill_;
    std::vector<SchedulerEntry> shuffled = entries_;
    std::shuffle(shuffled.begin(), shuffled.end(), random_);
    const SchedulerPlan plan = plan_step(entries_, budget_, shares_, cost_, now_);
    expect_same(plan, plan_step(shuffled, budget_, shares_, cost_, now_));
    apply(plan);
    now_ += static_cast<int64_t>(pick(1, 50)) * 1'000'000;
  }

  uint64_t longest_wait() const { return longest_wait_; }
  uint64_t done() const { return done_; }

 private:
  uint64_t pick(uint64_t low, uint64_t high) {
    return std::uniform_int_distribution<uint64_t>(low, high)(random_);
  }

  void arrive() {
    SchedulerEntry entry = waiting(next_++, pick(1, context_ / 2));
    entry.added_ns = now_;
    entry.priority = static_cast<int>(pick(0, 4)) - 2;
    entry.user = pick(0, 2);
    entry.logits_rows_all = pick(0, 9) == 0 ? 1 : 0;
    left_[entry.index] = pick(1, std::min<uint64_t>(context_ / 2 - 1, 200));  // tokens to generate
    since_[entry.index] = steps_;
    shares_.present(entry.user);
    entries_.push_back(entry);
  }

  size_t pages_held() const {
    size_t pages = 0;
    for (const SchedulerEntry& entry : entries_) pages += entry.pages;
    return pages;
  }

  static void expect_same(const SchedulerPlan& a, const SchedulerPlan& b) {
    ASSERT_EQ(a.preempt, b.preempt);
    ASSERT_EQ(a.admit, b.admit);
    ASSERT_EQ(a.rows.size(), b.rows.size());
    for (size_t i = 0; i < a.rows.size(); ++i) {
      ASSERT_EQ(a.rows[i].index, b.rows[i].index);
      ASSERT_EQ(a.rows[i].rows, b.rows[i].rows);
    }
  }

  SchedulerEntry& entry_of(size_t index) {
    return *std::find_if(entries_.begin(), entries_.end(),
                         [&](const SchedulerEntry& entry) { return entry.index == index; });
  }

  void apply(const SchedulerPlan& plan) {
    ++steps_;
    size_t decoding_before = 0;
    for (size_t index : plan.preempt) {
      SchedulerEntry& entry = entry_of(index);
      ASSERT_NE(entry.phase, Phase::waiting);
      entry.phase = Phase::waiting;
      entry.pending += entry.context;
      entry.context = entry.pages = entry.tokens_reserved = entry.restore_tokens = 0;
      entry.drafts = 0;
      ++entry.preemptions;
    }
    if (!plan.preempt.empty()) ASSERT_TRUE(plan.admit.empty());
    for (const SchedulerEntry& entry : entries_) {
      decoding_before += entry.phase == Phase::decoding ? 1 : 0;
    }
    std::set<size_t> ran;
    size_t rows = 0, logits = 0, decoded = 0, prompts = 0, prompt_rows = 0;
    for (const PlannedRows& planned : plan.rows) {
      SchedulerEntry& entry = entry_of(planned.index);
      ASSERT_TRUE(ran.insert(planned.index).second);
      ASSERT_GE(planned.rows, 1u);
      rows += planned.rows;
      if (planned.kind == RowKind::prefill) {
        ASSERT_NE(entry.phase, Phase::decoding);
        ASSERT_LE(planned.rows, entry.pending);
        if (entry.phase == Phase::waiting) {
          ASSERT_EQ(std::count(plan.admit.begin(), plan.admit.end(), planned.index), 1);
        }
        ++prompts;
        prompt_rows += planned.rows;
        logits += entry.logits_rows_all != 0 ? planned.rows : planned.rows == entry.pending ? 1 : 0;
      } else {
        ASSERT_EQ(entry.phase, Phase::decoding);
        ASSERT_EQ(planned.rows, planned.drafts + 1);
        ASSERT_LE(planned.drafts, entry.drafts);
        ++decoded;
        logits += planned.rows;
      }
    }
    ASSERT_LE(rows, budget_.rows);
    ASSERT_LE(logits, budget_.logits_rows);
    ASSERT_EQ(decoded, decoding_before) << "a decoding sequence without its row";
    ASSERT_TRUE(entries_.empty() || !plan.rows.empty()) << "nothing runs";
    ASSERT_EQ(prompt_rows, plan.prefill_rows);
    const bool prompts_run =
        std::any_of(entries_.begin(), entries_.end(),
                    [](const SchedulerEntry& entry) { return entry.phase == Phase::prefilling; });
    without_prefill_ = prompts > 0 || !prompts_run ? 0 : without_prefill_ + 1;
    for (const PlannedRows& planned : plan.rows) advance(planned);
    ASSERT_LE(pages_held(), pages_);
    size_t running = 0;
    for (const SchedulerEntry& entry : entries_) running += entry.phase == Phase::waiting ? 0 : 1;
    ASSERT_LE(running, budget_.sequences);
  }

  void advance(const PlannedRows& planned) {
    SchedulerEntry& entry = entry_of(planned.index);
    shares_.charge(entry.user, static_cast<double>(planned.rows), 1);
    const size_t accepted = planned.drafts == 0 ? 0 : pick(0, planned.drafts);
    const bool was_decoding = entry.phase == Phase::decoding;
    entry.pages = std::max(entry.pages, cache::pages_for(entry.context + planned.rows));
    entry.tokens_reserved = entry.pages * cache::kTokensPerPage;
    entry.context += was_decoding ? 1 + accepted : planned.rows;
    entry.restore_tokens = entry.context;
    longest_wait_ = std::max(longest_wait_, steps_ - since_[entry.index]);
    since_[entry.index] = steps_;
    if (!was_decoding) {
      entry.phase = Phase::prefilling;
      entry.pending -= planned.rows;
      if (entry.pending > 0) return;
    }
    uint64_t& left = left_[entry.index];
    left -= std::min<uint64_t>(left, 1 + accepted);
    if (left == 0) {
      const size_t index = entry.index;
      std::erase_if(entries_, [&](const SchedulerEntry& other) { return other.index == index; });
      ++done_;
      return;
    }
    entry.phase = Phase::decoding;
    entry.pending = 1;
    entry.logits_rows_all = 0;
    entry.drafts = static_cast<uint32_t>(std::min<uint64_t>(pick(0, 5), left - 1));
  }

  std::mt19937_64 random_;
  SchedulerBudget budget_;
  StepCost cost_;
  FairShare shares_;
  std::vector<SchedulerEntry> entries_;
  std::map<size_t, uint64_t> left_, since_;
  size_t pages_ = 0, next_ = 0;
  uint64_t context_ = 0, steps_ = 0, longest_wait_ = 0, done_ = 0;
  uint32_t without_prefill_ = 0;
  int64_t now_ = 0;
};

TEST(SchedulerWorld, EveryRuleInEveryStep) {
  uint64_t done = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed);
    for (int step = 0; step < 1000; ++step) {
      world.step();
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_LT(world.longest_wait(), 1000u) << "somebody starved";
    done += world.done();
  }
  EXPECT_GT(done, 1000u);
}

}  // namespace
}  // namespace deepinfer::engine
