// Whose turn it is: users, ages, images and drafts that compete for steps, starts and pages.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "cache/layout.h"
#include "engine/scheduler_cases.h"

namespace deepinfer::engine {
namespace {

// The same in time: the greedy one's requests wait for ever longer, a newcomer's do not.
TEST(Scheduler, AgeDoesNotTakeTheShareOfAnotherUser) {
  SchedulerBudget budget = kRoomy;
  budget.rows = 64;
  budget.sequences = 3;
  FairShare shares;
  std::map<uint64_t, size_t> served;
  std::vector<SchedulerEntry> entries;
  size_t next = 0;
  for (int step = 0; step < 4000; ++step) {
    const int64_t now = step * (kSecond / 10);
    std::map<uint64_t, size_t> there;
    for (const SchedulerEntry& entry : entries) ++there[entry.user];
    for (const auto& [user, wanted] : std::map<uint64_t, size_t>{{1, 30}, {2, 3}}) {
      if (user == 2 && step < 600) continue;  // comes when the other has waited for a minute
      for (size_t n = there[user]; n < wanted; ++n) {
        entries.push_back(waiting(next++, 300));
        entries.back().user = user;
        entries.back().added_ns = now;
        shares.present(user);
      }
    }
    const Planned planned = plan(entries, budget, shares, {}, now);
    budget.started += planned.plan.admit.size();
    for (SchedulerEntry& entry : entries) {
      const size_t rows = planned.of(entry.index);
      if (rows == 0) continue;
      entry.phase = Phase::prefilling;
      entry.context += rows;
      entry.pending -= rows;
      entry.pages = cache::pages_for(entry.context);
      entry.tokens_reserved = entry.pages * cache::kTokensPerPage;
      shares.charge(entry.user, static_cast<double>(rows), 1);
      if (step >= 600) served[entry.user] += rows;
    }
    std::erase_if(entries, [](const SchedulerEntry& entry) { return entry.pending == 0; });
  }
  EXPECT_NEAR(static_cast<double>(served[1]), static_cast<double>(served[2]),
              0.1 * static_cast<double>(served[2]));
}

// A deadline that has passed is worth nothing any more.
TEST(Scheduler, OnlyDeadlinesThatCanBeMetCount) {
  SchedulerBudget budget = kRoomy;
  budget.rows = budget.prefill_floor_rows = 64;
  budget.ageing_ns = 10 * kSecond;
  SchedulerEntry late = waiting(0, 500), soon = waiting(1, 500), plain = waiting(2, 100);
  late.deadline_ns = kSecond;
  soon.deadline_ns = 3 * kSecond;
  EXPECT_EQ(plan({late, soon, plain}, budget, {}, {}, kSecond / 2).of(0), 64u);
  EXPECT_EQ(plan({late, soon, plain}, budget, {}, {}, 2 * kSecond).of(1), 64u);
  EXPECT_EQ(plan({late, soon, plain}, budget, {}, {}, 4 * kSecond).of(2), 64u);
}

// A long prompt against short ones of the same user without end.
TEST(Scheduler, ALongPromptIsNotOvertakenForEver) {
  SchedulerBudget budget = kRoomy;
  budget.rows = 64;
  SchedulerEntry giant = prefilling(0, 4'000);
  for (size_t step = 1; step < 1000; ++step) {
    const auto now = static_cast<int64_t>(step) * (kSecond / 10);
    std::vector<SchedulerEntry> entries = {giant};
    for (size_t i = 0; i < 8; ++i) {
      entries.push_back(waiting(8 * step + i, 64));
      entries.back().added_ns = now;
    }
    const size_t rows = plan(entries, budget, {}, {}, now).of(0);
    giant.pending -= rows;
    giant.context += rows;
    if (giant.pending > 0) continue;
    EXPECT_LE(step, 4'000u / (64 / 8));
    return;
  }
  FAIL() << giant.pending << " left";
}

TEST(Scheduler, DraftsLeavePromptsTheirHalf) {
  SchedulerBudget budget = kRoomy;
  budget.rows = 64;
  std::vector<SchedulerEntry> entries;
  for (size_t i = 0; i < 16; ++i) {
    entries.push_back(decoding(i));
    entries.back().drafts = 5;
  }
  entries.push_back(prefilling(16, 5000));
  EXPECT_EQ(plan(entries, budget).of(16), 24u);
  EXPECT_EQ(plan(entries, budget).plan.verify_rows, 24u);
  budget.rows = 512;
  budget.target_seconds = 0.050;  // 40 rows in all
  const Planned bounded = plan(entries, budget, {}, measured());
  EXPECT_GE(bounded.of(16), 10u);
  EXPECT_LE(bounded.plan.expected_seconds, 0.0501);
}

// Short prompts have rows in every step; the image is the most urgent and fits beside nobody.
TEST(Scheduler, AnImageGetsItsStepAmongPromptsThatNeedNone) {
  for (double target : {0.0, 0.050}) {
    SchedulerBudget budget = kRoomy;
    budget.rows = target > 0 ? 512 : 64;
    budget.target_seconds = target;
    SchedulerEntry image = prefilling(1, 500);
    image.priority = 1;
    image.least_rows = image.most_rows = 64;
    uint32_t without = 0;
    size_t step = 0;
    for (; step < 10; ++step) {
      budget.steps_without_prefill = without;
      SchedulerEntry drafting = decoding(0);
      drafting.drafts = 5;
      const Planned planned =
          plan({drafting, image, waiting(2 + step, 30)}, budget, {}, measured());
      if (planned.of(1) > 0) break;
      EXPECT_EQ(planned.of(0), 6u);
      without = planned.plan.prefill_rows > 0 ? 0 : without + 1;
    }
    EXPECT_EQ(step, 3u);
  }
}

// Decoding sequences hold every page; a prompt that is under way needs one.
TEST(Scheduler, APromptThatIsDueFindsAPage) {
  SchedulerBudget budget = kRoomy;
  budget.free_pages = 0;
  const std::vector<SchedulerEntry> entries = {decoding(0, 300), decoding(1, 200),
                                               prefilling(2, 500, 256)};
  EXPECT_TRUE(plan(entries, budget).plan.preempt.empty());
  budget.steps_without_prefill = 3;
  const Planned planned = plan(entries, budget);
  EXPECT_EQ(planned.plan.preempt, std::vector<size_t>{1});
  EXPECT_EQ(planned.of(2), 256u);
  EXPECT_EQ(planned.of(0), 1u);
}

// One that gave way goes before newcomers, and comes back when there is room to grow.
TEST(Scheduler, OneThatGaveWayKeepsItsTurn) {
  SchedulerBudget budget = kRoomy;
  budget.free_pages = 4;
  SchedulerEntry back = waiting(9, 128 * 2);
  back.preemptions = 1;
  const std::vector<SchedulerEntry> entries = {decoding(0), decoding(1), waiting(2, 10), back};
  EXPECT_TRUE(plan(entries, budget).plan.admit.empty());
  budget.free_pages = 5;
  EXPECT_EQ(plan(entries, budget).plan.admit, (std::vector<size_t>{9, 2}));
}

// Pages that count as free because they can be evicted, until the one that wants them starts.
TEST(Scheduler, AResumePointTakesItsPagesFromTheFreeOnes) {
  SchedulerBudget budget = kRoomy;
  budget.free_pages = 4;
  SchedulerEntry resumed = waiting(1, 92);
  resumed.context = 345;
  resumed.tokens_reserved = 384;
  resumed.pinned_pages = 4;
  const std::vector<SchedulerEntry> entries = {prefilling(0, 160, 116), resumed};
  EXPECT_TRUE(plan(entries, budget).plan.admit.empty());
  budget.free_pages = 8;  // four and one, two for the other one, one to grow
  EXPECT_EQ(plan(entries, budget).plan.admit, std::vector<size_t>{1});
  // Alone it starts with what its resume point leaves.
  budget.free_pages = 5;
  EXPECT_EQ(plan({resumed}, budget).of(1), 92u);
}

// The big one's pages are kept, and nobody takes them while it is not its turn to start.
TEST(Scheduler, PagesAreKeptForTheMostAged) {
  SchedulerBudget budget = kRoomy;
  budget.sequences = 2;
  budget.free_pages = 12;  // ten, one, and one for the growth of the decoding one
  SchedulerEntry big = waiting(1, 128 * 10), small = waiting(2, 100);
  big.priority = -1;
  small.added_ns = 20 * kSecond;
  const std::vector<SchedulerEntry> entries = {decoding(0), big, small};
  EXPECT_EQ(plan(entries, budget, {}, {}, 20 * kSecond).plan.admit, std::vector<size_t>{2});
  budget.free_pages = 11;
  EXPECT_EQ(plan(entries, budget, {}, {}, 20 * kSecond).plan.admit, std::vector<size_t>{1});
  budget.free_pages = 10;
  EXPECT_TRUE(plan(entries, budget, {}, {}, 20 * kSecond).plan.admit.empty());
  // Every eighth start is its turn.
  budget.free_pages = 12;
  budget.started = 7;
  EXPECT_EQ(plan(entries, budget, {}, {}, 20 * kSecond).plan.admit, std::vector<size_t>{1});
}

}  // namespace
}  // namespace deepinfer::engine
