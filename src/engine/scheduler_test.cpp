#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "cache/layout.h"
#include "engine/scheduler_cases.h"

namespace deepinfer::engine {
namespace {

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

}  // namespace
}  // namespace deepinfer::engine
