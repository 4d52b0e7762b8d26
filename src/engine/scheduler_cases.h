#pragma once

// Entries, budgets and plans for the tests of the scheduler.

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "cache/layout.h"
#include "engine/scheduler.h"

namespace deepinfer::engine {

inline SchedulerEntry decoding(size_t index, uint64_t context = 100) {
  return {.index = index,
          .phase = Phase::decoding,
          .arrival = index,
          .context = context,
          .pages = cache::pages_for(context),
          .tokens_reserved = cache::pages_for(context) * cache::kTokensPerPage,
          .restore_tokens = context};
}
inline SchedulerEntry prefilling(size_t index, uint64_t pending, uint64_t context = 0) {
  SchedulerEntry entry = decoding(index, context);
  entry.phase = Phase::prefilling;
  entry.pending = pending;
  return entry;
}
inline SchedulerEntry waiting(size_t index, uint64_t pending) {
  return {.index = index, .phase = Phase::waiting, .arrival = index, .pending = pending};
}

inline constexpr int64_t kSecond = 1'000'000'000;

struct Planned {
  std::map<size_t, PlannedRows> rows;
  SchedulerPlan plan;
  size_t of(size_t index) const {
    const auto found = rows.find(index);
    return found == rows.end() ? 0 : found->second.rows;
  }
};

inline Planned plan(const std::vector<SchedulerEntry>& entries, const SchedulerBudget& budget,
                    const FairShare& shares = {}, const StepCost& cost = {}, int64_t now = 0) {
  Planned planned;
  planned.plan = plan_step(entries, budget, shares, cost, now);
  for (const PlannedRows& rows : planned.plan.rows) {
    EXPECT_TRUE(planned.rows.emplace(rows.index, rows).second) << "planned twice";
  }
  return planned;
}

inline constexpr SchedulerBudget kRoomy = {
    .rows = 512, .logits_rows = 512, .sequences = 64, .free_pages = 10'000};

// 10 ms and one more for each row.
inline StepCost measured() {
  StepCost cost;
  for (size_t rows : {1, 16, 128, 512}) {
    cost.observe(rows, 0, 0.010 + 0.001 * static_cast<double>(rows));
  }
  return cost;
}

}  // namespace deepinfer::engine
