#include "engine/scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "cache/layout.h"

namespace deepinfer::engine {
namespace {

size_t pages_missing(const SchedulerEntry& entry, uint64_t rows) {
  const size_t wanted = cache::pages_for(entry.context + rows);
  const size_t held = static_cast<size_t>(entry.tokens_reserved / cache::kTokensPerPage);
  return wanted > held ? wanted - held : 0;
}

// Urgency: the priority and what waiting added to it.
int64_t level_of(const SchedulerEntry& entry, const SchedulerBudget& budget, int64_t now_ns) {
  const int64_t waited = std::max<int64_t>(0, now_ns - entry.added_ns);
  return entry.priority + (budget.ageing_ns > 0 ? waited / budget.ageing_ns : 0);
}

// Makes one plan; lives for one call of plan_step().
class Planning {
 public:
  Planning(std::span<const SchedulerEntry> entries, const SchedulerBudget& budget,
           const FairShare& shares, const StepCost& cost, int64_t now_ns)
      : budget_(budget),
        shares_(shares),
        cost_(cost),
        now_ns_(now_ns),
        rows_(budget.rows),
        logits_(budget.logits_rows),
        pages_(budget.free_pages) {
    for (const SchedulerEntry& entry : entries) {
      if (entry.phase != Phase::waiting) running_.push_back(&entry);
      if (!entry.runnable) continue;
      (entry.phase == Phase::decoding ? decoding_ : prompts_).push_back(&entry);
    }
    const auto older = [](const SchedulerEntry* a, const SchedulerEntry* b) {
      return a->arrival < b->arrival;
    };
    std::sort(running_.begin(), running_.end(), older);
    std::sort(decoding_.begin(), decoding_.end(), older);
    slots_ = budget.sequences - std::min(budget.sequences, running_.size());
  }

  SchedulerPlan run() {
    order_prompts();
    const bool due =
        !prompts_.empty() && budget_.steps_without_prefill + 1 >= budget_.prefill_every;
    if (due && image_needs_the_step()) return std::move(plan_);
    make_room_for_decoding();
    add_decoding();
    const size_t floor = due ? std::min(rows_, budget_.prefill_floor_rows) : 0;
    add_drafts(floor);
    add_prompts(floor);
    if (plan_.rows.empty()) make_room_for_a_prompt();
    plan_.expected_seconds = cost_.seconds(rows_planned(), context_);
    return std::move(plan_);
  }

 private:
  size_t rows_planned() const { return budget_.rows - rows_; }

  void order_prompts() {
    struct Rank {
      int64_t level;
      int64_t deadline;
      double served;
      const SchedulerEntry* entry;
    };
    std::vector<Rank> ranks;
    for (const SchedulerEntry* entry : prompts_) {
      const int64_t never = std::numeric_limits<int64_t>::max();
      ranks.push_back({level_of(*entry, budget_, now_ns_),
                       entry->deadline_ns == 0 ? never : entry->deadline_ns,
                       shares_.served(entry->user), entry});
    }
    std::sort(ranks.begin(), ranks.end(), [](const Rank& a, const Rank& b) {
      if (a.level != b.level) return a.level > b.level;
      if (a.deadline != b.deadline) return a.deadline < b.deadline;
      if (a.served != b.served) return a.served < b.served;
      if (a.entry->pending != b.entry->pending) return a.entry->pending < b.entry->pending;
      return a.entry->arrival < b.entry->arrival;
    });
    for (size_t i = 0; i < ranks.size(); ++i) prompts_[i] = ranks[i].entry;
  }

  // An image that never finds its rows beside the decoding ones has the step for itself.
  bool image_needs_the_step() {
    const SchedulerEntry& first = *prompts_.front();
    if (first.least_rows + decoding_.size() <= rows_) return false;
    if (first.phase == Phase::waiting && !starts(first, pages_to_start(), true)) return false;
    const size_t rows = chunk_of(first, rows_);
    if (rows == 0) return false;
    take_chunk(first, rows);
    if (first.phase == Phase::waiting) plan_.admit.push_back(first.index);
    plan_.expected_seconds = cost_.seconds(rows, context_);
    return true;
  }

  // The oldest of the highest priority always stays: it fits when all others are gone.
  const SchedulerEntry* protected_entry() const {
    const SchedulerEntry* best = nullptr;
    for (const SchedulerEntry* entry : running_) {
      if (best == nullptr || entry->priority > best->priority) best = entry;
    }
    return best;
  }

  // The next to give way; null: nobody can.
  const SchedulerEntry* victim() const {
    const SchedulerEntry* keep = protected_entry();
    const auto before = [&](const SchedulerEntry* a, const SchedulerEntry* b) {
      const bool a_spared = a->preemptions >= budget_.max_preemptions;
      const bool b_spared = b->preemptions >= budget_.max_preemptions;
      if (a_spared != b_spared) return b_spared;
      if (a->priority != b->priority) return a->priority < b->priority;
      if ((a->pages > 0) != (b->pages > 0)) return a->pages > 0;
      if (a->restore_tokens != b->restore_tokens) return a->restore_tokens < b->restore_tokens;
      return a->arrival > b->arrival;
    };
    const SchedulerEntry* best = nullptr;
    for (const SchedulerEntry* entry : running_) {
      if (entry != keep && (best == nullptr || before(entry, best))) best = entry;
    }
    return best;
  }

  void preempt(const SchedulerEntry* entry) {
    plan_.preempt.push_back(entry->index);
    pages_ += entry->pages;
    std::erase(running_, entry);
    std::erase(decoding_, entry);
    std::erase(prompts_, entry);
  }

  void make_room_for_decoding() {
    size_t needed = 0;
    for (const SchedulerEntry* entry : decoding_) needed += pages_missing(*entry, 1);
    while (needed > pages_) {
      const SchedulerEntry* entry = victim();
      if (entry == nullptr) return;
      if (entry->phase == Phase::decoding && entry->runnable) needed -= pages_missing(*entry, 1);
      preempt(entry);
    }
  }

  void take(const SchedulerEntry& entry, size_t rows, size_t logits) {
    rows_ -= rows;
    logits_ -= logits;
    pages_ -= pages_missing(entry, rows);
    context_ += static_cast<double>(rows) *
                (static_cast<double>(entry.context) + 0.5 * static_cast<double>(rows));
  }

  void add_decoding() {
    check(decoding_.size() <= std::min(rows_, logits_), "more decoding sequences than rows");
    for (const SchedulerEntry* entry : decoding_) {
      // Only the last one that stays can find no page: someone outside holds it.
      if (pages_missing(*entry, 1) > pages_) continue;
      take(*entry, 1, 1);
      plan_.rows.push_back({.index = entry->index, .rows = 1});
      drafting_.push_back(entry);
      ++plan_.decode_rows;
    }
  }

  // Drafts come after everybody's own row and the prompts' floor; position by position, so that
  // each sequence has its first draft before one has its second.
  void add_drafts(size_t floor) {
    const size_t spare_rows = rows_ - floor;
    size_t room = std::min(spare_rows, logits_);
    bool any = true;
    for (uint32_t position = 0; any && room > 0; ++position) {
      any = false;
      for (size_t i = 0; i < drafting_.size() && room > 0; ++i) {
        const SchedulerEntry& entry = *drafting_[i];
        PlannedRows& planned = plan_.rows[i];
        if (entry.drafts <= position || planned.drafts != position) continue;
        const size_t more =
            pages_missing(entry, planned.rows + 1) - pages_missing(entry, planned.rows);
        if (more > pages_ || !within_target(entry.context)) continue;
        pages_ -= more;
        context_ += static_cast<double>(entry.context);
        --rows_, --logits_, --room;
        ++planned.rows, ++planned.drafts;
        planned.kind = RowKind::verify;
        ++plan_.verify_rows;
        any = true;
      }
    }
  }

  bool within_target(uint64_t context) const {
    return budget_.target_seconds <= 0 ||
           cost_.rows_within(budget_.target_seconds, rows_planned(), context_,
                             static_cast<double>(context), 1) > 0;
  }

  // Rows of the next chunk, of `most`; less than least_rows: none that is worth anything.
  size_t chunk_of(const SchedulerEntry& entry, size_t most) const {
    uint64_t rows = std::min<uint64_t>({entry.pending, most, rows_});
    if (entry.most_rows > 0) rows = std::min(rows, std::max(entry.most_rows, entry.least_rows));
    if (entry.logits_rows_all != 0) {
      rows = std::min<uint64_t>(rows, logits_);
    } else if (rows == entry.pending && logits_ == 0) {
      --rows;
    }
    const uint64_t held = entry.tokens_reserved - std::min(entry.tokens_reserved, entry.context);
    const uint64_t room = held + uint64_t{pages_} * cache::kTokensPerPage;
    const uint64_t tail = entry.context % cache::kTokensPerPage;
    // What the pages hold; exact by pages_missing(), reached from above.
    rows = std::min(rows, room + cache::kTokensPerPage - tail);
    while (rows > 0 && pages_missing(entry, rows) > pages_) --rows;
    return rows < entry.least_rows ? 0 : static_cast<size_t>(rows);
  }

  void take_chunk(const SchedulerEntry& entry, size_t rows) {
    const size_t logits =
        entry.logits_rows_all != 0 ? rows : (rows == entry.pending ? size_t{1} : size_t{0});
    take(entry, rows, logits);
    plan_.rows.push_back({.index = entry.index, .rows = rows, .kind = RowKind::prefill});
    plan_.prefill_rows += rows;
  }

  // Rows that prompts may have in this step; the target counts only beside decoding rows.
  size_t rows_for_prompts(size_t floor, uint64_t context) const {
    if (plan_.decode_rows == 0 || budget_.target_seconds <= 0) return rows_;
    const size_t within = cost_.rows_within(budget_.target_seconds, rows_planned(), context_,
                                            static_cast<double>(context), rows_);
    const size_t still = floor - std::min(floor, plan_.prefill_rows);
    return std::min(rows_, std::max(within, still));
  }

  // Pages that may go to one that starts: what running prompts still need stays theirs.
  size_t pages_to_start() const {
    size_t promised = 0;
    size_t decoding = 0;
    for (const SchedulerEntry* entry : running_) {
      if (entry->phase == Phase::prefilling) promised += pages_missing(*entry, entry->pending);
      if (entry->phase == Phase::decoding) ++decoding;
    }
    if (!running_.empty()) promised += 1 + decoding / 8;
    return pages_ - std::min(pages_, promised);
  }

  // Whether a waiting sequence starts; says why not, once.
  bool starts(const SchedulerEntry& entry, size_t to_start, bool first) {
    std::string reason;
    const size_t needed = pages_missing(entry, entry.pending);
    const bool idle = running_.empty() && first;
    if (!plan_.preempt.empty()) {
      reason = "running sequences gave way in this step";
    } else if (slots_ == 0) {
      reason = std::to_string(budget_.sequences) + " sequences run, the most at once";
    } else if (closed_) {
      reason = "an older request keeps what becomes free";
    } else if (needed > to_start && !idle) {
      reason =
          std::to_string(needed) + " pages needed, " + std::to_string(to_start) + " can be had";
      // From now on nobody overtakes it.
      closed_ = now_ns_ - entry.added_ns >= budget_.reserve_after_ns;
    } else {
      return true;
    }
    if (plan_.waits_because.empty()) plan_.waits_because = std::move(reason);
    return false;
  }

  // Two rounds: while others want rows too, one prompt has half of what is left at most; then the
  // first ones take the rest. Chunks of one prompt are joined.
  void add_prompts(size_t floor) {
    size_t to_start = pages_to_start();
    std::vector<const SchedulerEntry*> able;
    for (const SchedulerEntry* entry : prompts_) {
      if (entry->phase == Phase::prefilling || starts(*entry, to_start, able.empty())) {
        able.push_back(entry);
        if (entry->phase == Phase::waiting) {
          --slots_;
          to_start -= std::min(to_start, pages_missing(*entry, entry->pending));
        }
      }
      if (able.size() >= rows_) break;
    }
    for (size_t i = 0; i < able.size(); ++i) {
      const SchedulerEntry& entry = *able[i];
      const size_t room = rows_for_prompts(floor, entry.context);
      if (room == 0) break;
      const size_t share = std::max<size_t>(budget_.prefill_floor_rows, (room + 1) / 2);
      const bool last = i + 1 == able.size();
      const size_t rows = chunk_of(entry, last ? room : std::max(share, entry.least_rows));
      if (rows == 0 || rows > std::max<uint64_t>(room, floor > 0 ? entry.least_rows : 0)) continue;
      take_chunk(entry, rows);
      if (entry.phase == Phase::waiting) plan_.admit.push_back(entry.index);
    }
    grow_chunks(able, floor);
  }

  void grow_chunks(const std::vector<const SchedulerEntry*>& able, size_t floor) {
    size_t next = 0;
    for (PlannedRows& planned : plan_.rows) {
      if (planned.kind != RowKind::prefill) continue;
      while (able[next]->index != planned.index) ++next;
      const SchedulerEntry& entry = *able[next];
      const size_t room = rows_for_prompts(floor, entry.context);
      if (room == 0 || planned.rows == entry.pending) continue;
      give_back(entry, planned.rows);
      const size_t rows = chunk_of(entry, planned.rows + room);
      planned.rows = std::max(rows, planned.rows);
      take_again(entry, planned.rows);
    }
  }

  void give_back(const SchedulerEntry& entry, size_t rows) {
    rows_ += rows;
    logits_ += entry.logits_rows_all != 0 ? rows : 0;
    pages_ += pages_missing(entry, rows);
    context_ -= static_cast<double>(rows) *
                (static_cast<double>(entry.context) + 0.5 * static_cast<double>(rows));
    plan_.prefill_rows -= rows;
  }

  void take_again(const SchedulerEntry& entry, size_t rows) {
    const size_t logits =
        entry.logits_rows_all != 0 ? rows : (rows == entry.pending ? size_t{1} : size_t{0});
    take(entry, rows, logits);
    plan_.prefill_rows += rows;
  }

  // Nothing could run, so prompts hold each other's pages: the least valuable ones give way until
  // the most urgent running one goes on.
  void make_room_for_a_prompt() {
    while (true) {
      for (const SchedulerEntry* entry : prompts_) {
        if (entry->phase == Phase::waiting) continue;
        if (const size_t rows = chunk_of(*entry, rows_); rows > 0) return take_chunk(*entry, rows);
      }
      const SchedulerEntry* entry = victim();
      if (entry == nullptr) return;
      preempt(entry);
    }
  }

  const SchedulerBudget& budget_;
  const FairShare& shares_;
  const StepCost& cost_;
  const int64_t now_ns_;

  std::vector<const SchedulerEntry*> running_;   // by arrival
  std::vector<const SchedulerEntry*> decoding_;  // by arrival
  std::vector<const SchedulerEntry*> prompts_;   // most urgent first; running and waiting
  std::vector<const SchedulerEntry*> drafting_;  // of plan_.rows[i]
  size_t rows_, logits_, pages_;                 // left
  size_t slots_ = 0;                             // sequences that may start
  double context_ = 0;                           // tokens that the planned rows read
  bool closed_ = false;                          // nobody starts behind one that waits for pages
  SchedulerPlan plan_;
};

}  // namespace

double FairShare::served(uint64_t user) const {
  const auto found = served_.find(user);
  return found == served_.end() ? 0 : found->second;
}

void FairShare::present(uint64_t user) {
  if (served_.contains(user)) return;
  double least = 0;
  bool first = true;
  for (const auto& [other, rows] : served_) {
    least = first ? rows : std::min(least, rows);
    first = false;
  }
  served_.emplace(user, least);
}

void FairShare::charge(uint64_t user, double rows, double weight) {
  check(weight > 0, "weight of a user");
  present(user);
  served_[user] += rows / weight;
}

void FairShare::forget(uint64_t user) { served_.erase(user); }

SchedulerPlan plan_step(std::span<const SchedulerEntry> entries, const SchedulerBudget& budget,
                        const FairShare& shares, const StepCost& cost, int64_t now_ns) {
  return Planning(entries, budget, shares, cost, now_ns).run();
}

}  // namespace deepinfer::engine
