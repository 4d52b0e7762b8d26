#include "engine/scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "cache/layout.h"

namespace deepinfer::engine {
namespace {

// Free pages that `rows` more rows take.
size_t pages_missing(const SchedulerEntry& entry, uint64_t rows) {
  const size_t wanted = cache::pages_for(entry.context + rows);
  const size_t held = static_cast<size_t>(entry.tokens_reserved / cache::kTokensPerPage);
  const size_t pinned = entry.phase == Phase::waiting ? entry.pinned_pages : 0;
  return pinned + (wanted > held ? wanted - held : 0);
}

// One start in so many is that of the one that waits longest, whatever the order says, and one row
// of prompts in so many.
constexpr uint64_t kAgedTurn = 8;

// Of two of one user that differ in length the shorter goes first, unless the longer one has waited
// `ageing_ns` for each so many rows that it is longer.
constexpr uint64_t kRowsPerAgeing = 2048;

// More urgent by its age: the priority and what waiting adds to it, in ns.
int64_t aged(const SchedulerEntry& entry, const SchedulerBudget& budget) {
  return entry.priority * budget.ageing_ns - entry.added_ns;
}
bool more_aged(const SchedulerEntry& a, const SchedulerEntry& b, const SchedulerBudget& budget) {
  const int64_t aged_a = aged(a, budget), aged_b = aged(b, budget);
  return aged_a != aged_b ? aged_a > aged_b : a.arrival < b.arrival;
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
    if (slots_ == 0) leave_waiting_alone();
  }

  SchedulerPlan run() {
    order_prompts();
    const bool due =
        !prompts_.empty() && budget_.steps_without_prefill + 1 >= budget_.prefill_every;
    const bool image_waits = image_needs_the_step();
    if (image_waits && due) {
      take_image();
      return std::move(plan_);
    }
    make_room(due);
    add_decoding();
    const size_t floor = due ? std::min(rows_, floor_rows()) : 0;
    add_drafts(floor);
    // Rows for others would put off the step that the image waits for.
    if (!image_waits) add_prompts(floor);
    if (plan_.rows.empty()) make_room_for_a_prompt();
    plan_.expected_seconds = cost_.seconds(rows_planned(), context_);
    return std::move(plan_);
  }

 private:
  size_t rows_planned() const { return budget_.rows - rows_; }
  size_t floor_rows() const {
    return std::max<size_t>(budget_.prefill_floor_rows, prompts_.front()->least_rows);
  }

  void leave_waiting_alone() {
    const size_t before = prompts_.size();
    std::erase_if(prompts_,
                  [](const SchedulerEntry* entry) { return entry->phase == Phase::waiting; });
    if (prompts_.size() == before) return;
    plan_.waits_because = std::to_string(budget_.sequences) + " sequences run, the most at once";
  }

  void order_prompts() {
    struct Rank {
      int64_t deadline;
      double served;
      int64_t due;
      const SchedulerEntry* entry;
    };
    std::vector<Rank> ranks;
    ranks.reserve(prompts_.size());
    for (const SchedulerEntry* entry : prompts_) {
      const bool met = entry->deadline_ns > now_ns_;
      const auto length = static_cast<int64_t>(std::min<uint64_t>(entry->pending, 1 << 24));
      ranks.push_back({met ? entry->deadline_ns : std::numeric_limits<int64_t>::max(),
                       shares_.served(entry->user),
                       entry->added_ns + length * (budget_.ageing_ns / int64_t{kRowsPerAgeing}),
                       entry});
    }
    std::sort(ranks.begin(), ranks.end(), [](const Rank& a, const Rank& b) {
      const SchedulerEntry &left = *a.entry, &right = *b.entry;
      if (left.priority != right.priority) return left.priority > right.priority;
      if (gave_way(left) != gave_way(right)) return gave_way(left);
      if (a.deadline != b.deadline) return a.deadline < b.deadline;
      if (a.served != b.served) return a.served < b.served;
      if (a.due != b.due) return a.due < b.due;
      return left.arrival < right.arrival;
    });
    for (size_t i = 0; i < ranks.size(); ++i) prompts_[i] = ranks[i].entry;
    find_aged();
  }

  // Waits for a second time: somebody listens to it already.
  static bool gave_way(const SchedulerEntry& entry) {
    return entry.phase == Phase::waiting && entry.preemptions > 0;
  }

  // The most aged prompt goes first; a waiting one does not take the last slot from the others
  // unless the start is its turn.
  void find_aged() {
    if (prompts_.empty()) return;
    const SchedulerEntry* oldest = prompts_.front();
    for (const SchedulerEntry* entry : prompts_) {
      if (more_aged(*entry, *oldest, budget_)) oldest = entry;
      if (entry->phase != Phase::waiting) continue;
      if (aged_waiting_ == nullptr || more_aged(*entry, *aged_waiting_, budget_)) {
        aged_waiting_ = entry;
      }
    }
    const SchedulerEntry& first = *prompts_.front();
    if (oldest == &first || now_ns_ - oldest->added_ns < budget_.ageing_ns) return;
    if (oldest->phase == Phase::waiting) {
      const bool turn = slots_ > 1 || budget_.started % kAgedTurn == kAgedTurn - 1;
      if (!turn || gave_way(first)) return;
    }
    aged_first_ = true;
    const auto place = std::find(prompts_.begin(), prompts_.end(), oldest);
    std::rotate(prompts_.begin(), place, place + 1);
  }

  // Has the first prompt an image that never finds its rows beside the decoding ones?
  bool image_needs_the_step() {
    if (prompts_.empty() || decoding_.empty()) return false;
    const SchedulerEntry& first = *prompts_.front();
    if (first.least_rows + decoding_.size() <= rows_) return false;
    if (first.phase == Phase::waiting && !starts(first, pages_to_start(), true)) return false;
    return chunk_of(first, rows_) > 0;
  }

  void take_image() {
    const SchedulerEntry& first = *prompts_.front();
    take_chunk(first, chunk_of(first, rows_));
    if (first.phase == Phase::waiting) plan_.admit.push_back(first.index);
    plan_.expected_seconds = cost_.seconds(rows_planned(), context_);
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
      if ((a->pages > 0) != (b->pages > 0)) return a->pages > 0;
      if (a->priority != b->priority) return a->priority < b->priority;
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

  // Pages for the row of each decoding sequence; when prompts are due, for the next rows of the
  // first running one too.
  void make_room(bool due) {
    size_t needed = 0;
    for (const SchedulerEntry* entry : decoding_) needed += pages_missing(*entry, 1);
    while (true) {
      const size_t of_prompt = due ? pages_of_first_prompt() : 0;
      if (needed + of_prompt <= pages_) return;
      const SchedulerEntry* entry = victim();
      if (entry == nullptr) return;
      if (entry->phase == Phase::decoding && entry->runnable) needed -= pages_missing(*entry, 1);
      preempt(entry);
    }
  }

  size_t pages_of_first_prompt() const {
    for (const SchedulerEntry* entry : prompts_) {
      if (entry->phase != Phase::waiting) return pages_missing(*entry, entry->least_rows);
    }
    return 0;
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

  // Rows that drafts may have: of what everybody's own row leaves, prompts have the half first, or
  // their floor. A prompt's row is sure to be needed, a draft is not.
  size_t rows_for_drafts(size_t floor) {
    size_t wish = 0;
    const size_t to_start = pages_to_start();
    for (const SchedulerEntry* entry : prompts_) {
      if (wish >= rows_) break;
      const bool can = entry->phase == Phase::prefilling ||
                       (plan_.preempt.empty() && pages_missing(*entry, entry->pending) <= to_start);
      if (can) wish += std::min<uint64_t>(entry->pending, rows_);
    }
    uint64_t longest = 0;
    for (const SchedulerEntry* entry : drafting_) longest = std::max(longest, entry->context);
    size_t spare = rows_;
    if (budget_.target_seconds > 0) {
      spare = cost_.rows_within(budget_.target_seconds, rows_planned(), context_,
                                static_cast<double>(longest), rows_);
    }
    const size_t prompts = std::min(wish, std::max(floor, (spare + 1) / 2));
    const size_t logits = logits_ - std::min<size_t>(logits_, wish > 0 ? 1 : 0);
    return std::min(spare - std::min(spare, prompts), logits);
  }

  // Position by position, so that each sequence has its first draft before one has its second.
  void add_drafts(size_t floor) {
    if (std::ranges::none_of(drafting_, [](const auto* entry) { return entry->drafts > 0; })) {
      return;
    }
    size_t room = rows_for_drafts(floor);
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
  size_t rows_for_prompts(size_t floor, const SchedulerEntry& entry, size_t planned) const {
    if (plan_.decode_rows == 0 || budget_.target_seconds <= 0) return rows_;
    // What a further row of its chunk reads in the mean.
    const uint64_t more = std::min<uint64_t>(entry.pending - planned, rows_);
    const double context =
        static_cast<double>(entry.context + planned) + 0.5 * static_cast<double>(more);
    const size_t within =
        cost_.rows_within(budget_.target_seconds, rows_planned(), context_, context, rows_);
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

  bool waited_long(const SchedulerEntry& entry) const {
    return now_ns_ - entry.added_ns >= budget_.reserve_after_ns;
  }

  // Whether a waiting sequence starts; says why not, once.
  bool starts(const SchedulerEntry& entry, size_t to_start, bool first) {
    std::string reason;
    // One that gave way starts again with room for each decoding sequence to grow.
    const size_t needed =
        pages_missing(entry, entry.pending) + (entry.preemptions > 0 ? decoding_.size() : 0);
    const bool idle = running_.empty() && first;
    const bool overtakes =
        aged_waiting_ != nullptr && aged_waiting_ != &entry && waited_long(*aged_waiting_) &&
        needed + pages_missing(*aged_waiting_, aged_waiting_->pending) > to_start;
    if (!plan_.preempt.empty()) {
      reason = "running sequences gave way in this step";
    } else if (slots_ == 0) {
      reason = std::to_string(budget_.sequences) + " sequences run, the most at once";
    } else if (closed_ || overtakes) {
      reason = "an older request keeps what becomes free";
    } else if (needed > to_start && !idle) {
      reason =
          std::to_string(needed) + " pages needed, " + std::to_string(to_start) + " can be had";
      // From now on nobody overtakes it.
      closed_ = waited_long(entry) || entry.preemptions > 0;
    } else {
      return true;
    }
    if (plan_.waits_because.empty()) plan_.waits_because = std::move(reason);
    return false;
  }

  // Of `room` rows, what one prompt may have while others want some too.
  size_t share_of(size_t index, size_t room) const {
    if (aged_first_ && index == 0) return (room + kAgedTurn - 1) / kAgedTurn;
    return std::max(budget_.prefill_floor_rows, room - room / 4);
  }

  // Two rounds: while others want rows too, each prompt has its share of what is left; then the
  // first ones take the rest. Chunks of one prompt are joined.
  void add_prompts(size_t floor) {
    size_t to_start = pages_to_start();
    std::vector<const SchedulerEntry*> able;
    for (const SchedulerEntry* entry : prompts_) {
      if (entry->phase == Phase::prefilling || starts(*entry, to_start, able.empty())) {
        able.push_back(entry);
        if (entry->phase == Phase::waiting) {
          --slots_;
          if (entry == aged_waiting_) aged_waiting_ = nullptr;
          to_start -= std::min(to_start, pages_missing(*entry, entry->pending));
        }
      }
      if (able.size() >= rows_) break;
    }
    for (size_t i = 0; i < able.size(); ++i) {
      const SchedulerEntry& entry = *able[i];
      const size_t room = rows_for_prompts(floor, entry, 0);
      // As above: an image that is first waits for its step, and so do those behind it.
      if (room == 0 || (&entry == prompts_.front() && room < entry.least_rows)) break;
      const bool last = i + 1 == able.size();
      const size_t share = std::max<size_t>(share_of(i, room), entry.least_rows);
      const size_t rows = chunk_of(entry, last ? room : std::min(room, share));
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
      const size_t room = rows_for_prompts(floor, entry, planned.rows);
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

  std::vector<const SchedulerEntry*> running_;    // by arrival
  std::vector<const SchedulerEntry*> decoding_;   // by arrival
  std::vector<const SchedulerEntry*> prompts_;    // most urgent first; running and waiting
  std::vector<const SchedulerEntry*> drafting_;   // of plan_.rows[i]
  size_t rows_, logits_, pages_;                  // left
  size_t slots_ = 0;                              // sequences that may start
  double context_ = 0;                            // tokens that the planned rows read
  bool closed_ = false;                           // nobody starts behind one that waits for pages
  bool aged_first_ = false;                       // prompts_[0] is there by its age only
  const SchedulerEntry* aged_waiting_ = nullptr;  // the most aged one that has not started
  SchedulerPlan plan_;
};

}  // namespace

SchedulerPlan plan_step(std::span<const SchedulerEntry> entries, const SchedulerBudget& budget,
                        const FairShare& shares, const StepCost& cost, int64_t now_ns) {
  return Planning(entries, budget, shares, cost, now_ns).run();
}

}  // namespace deepinfer::engine
