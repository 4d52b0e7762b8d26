#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cache/layout.h"
#include "engine/scheduler_cases.h"

namespace deepinfer::engine {
namespace {

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
    for (size_t rows : {1, 16, 128, 512}) {
      for (double context : {0.0, 50'000.0}) {
        cost_.observe(rows, context, 0.010 + 0.001 * static_cast<double>(rows) + 1e-7 * context);
      }
    }
  }

  void step() {
    while (entries_.size() < 20 && pick(0, 3) == 0) arrive();
    budget_.free_pages = pages_ - pages_held();
    budget_.steps_without_prefill = without_prefill_;
    std::vector<SchedulerEntry> shuffled = entries_;
    std::shuffle(shuffled.begin(), shuffled.end(), random_);
    const SchedulerPlan plan = plan_step(entries_, budget_, shares_, cost_, now_);
    expect_same(plan, plan_step(shuffled, budget_, shares_, cost_, now_));
    expect_cheapest(plan);
    expect_in_time(plan);
    apply(plan);
    budget_.started += plan.admit.size();
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
    if (entry.logits_rows_all == 0 && pick(0, 3) == 0) {  // begins with an image
      entry.least_rows = entry.most_rows = pick(1, std::min<uint64_t>(entry.pending, budget_.rows));
      image_[entry.index] = entry.least_rows;
    }
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

  // Nobody who could go was cheaper than one who went, and the first of all stays.
  void expect_cheapest(const SchedulerPlan& plan) {
    std::vector<SchedulerEntry> left;
    for (const SchedulerEntry& entry : entries_) {
      if (entry.phase != Phase::waiting) left.push_back(entry);
    }
    const auto first = std::min_element(left.begin(), left.end(), [](const auto& a, const auto& b) {
      return std::pair(-a.priority, a.arrival) < std::pair(-b.priority, b.arrival);
    });
    if (first == left.end()) return;
    const size_t stays = first->index;
    const auto rank = [&](const SchedulerEntry& entry) {
      return std::tuple(entry.preemptions >= budget_.max_preemptions, entry.priority,
                        entry.restore_tokens);
    };
    for (size_t index : plan.preempt) {
      ASSERT_NE(index, stays);
      const SchedulerEntry& gone = entry_of(index);
      for (const SchedulerEntry& other : left) {
        if (other.index == stays || other.index == index || other.pages == 0) continue;
        ASSERT_LE(rank(gone), rank(other)) << index << " went, " << other.index << " stayed";
      }
      std::erase_if(left, [&](const SchedulerEntry& entry) { return entry.index == index; });
    }
  }

  // Beside decoding rows only they themselves, and prompts that are due, take longer.
  void expect_in_time(const SchedulerPlan& plan) {
    const bool late = plan.expected_seconds > budget_.target_seconds + 1e-9;
    if (budget_.target_seconds <= 0 || plan.decode_rows == 0 || !late) return;
    if (plan.prefill_rows == 0) {
      ASSERT_EQ(plan.verify_rows, 0u) << plan.expected_seconds;
      return;
    }
    ASSERT_GE(budget_.steps_without_prefill + 1, budget_.prefill_every);
    uint64_t most = budget_.prefill_floor_rows;
    for (const SchedulerEntry& entry : entries_) most = std::max(most, entry.least_rows);
    ASSERT_LE(plan.prefill_rows, most);
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
      if (image_.contains(index)) entry.least_rows = entry.most_rows = image_[index];
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
        ASSERT_GE(planned.rows, entry.least_rows);
        if (entry.most_rows > 0) ASSERT_LE(planned.rows, entry.most_rows);
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
    const bool image = decoded == 0 && prompts == 1 && decoding_before > 0;
    if (image) {
      const SchedulerEntry& entry = entry_of(plan.rows.front().index);
      ASSERT_GT(entry.least_rows + decoding_before, budget_.rows);
      ASSERT_GE(without_prefill_ + 1, budget_.prefill_every);
    } else {
      ASSERT_EQ(decoded, decoding_before) << "a decoding sequence without its row";
    }
    ASSERT_TRUE(entries_.empty() || !plan.rows.empty()) << "nothing runs";
    ASSERT_EQ(prompt_rows, plan.prefill_rows);
    const bool prompts_run =
        std::any_of(entries_.begin(), entries_.end(),
                    [](const SchedulerEntry& entry) { return entry.phase == Phase::prefilling; });
    without_prefill_ = prompts > 0 || !prompts_run ? 0 : without_prefill_ + 1;
    ASSERT_LE(without_prefill_, budget_.prefill_every) << "prompts starve";
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
    entry.least_rows = 1;
    entry.most_rows = 0;
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
  std::map<size_t, uint64_t> left_, since_, image_;
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
