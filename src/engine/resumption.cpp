#include "engine/resumption.h"

#include <algorithm>
#include <utility>

namespace deepinfer::engine {
namespace {

using cache::Exactness;
using cache::SnapshotKind;

// Points closer to each other than this are one.
constexpr uint64_t kPointDistance = 16;

bool inside_image(const RequestRecord& record, uint64_t position) {
  return std::ranges::any_of(record.spans, [&](const PromptSpan& span) {
    return position > span.start && position < span.start + span.count;
  });
}

// The last position at or below `position` that lies inside of no image.
uint64_t outside_images(const RequestRecord& record, uint64_t position) {
  for (auto span = record.spans.rbegin(); span != record.spans.rend(); ++span) {
    if (position > span->start && position < span->start + span->count) return span->start;
  }
  return position;
}

// Of several at one place the first stays.
void add_point(std::vector<SnapshotPoint>& points, uint64_t position, SnapshotKind kind) {
  const bool known = std::ranges::any_of(
      points, [&](const SnapshotPoint& point) { return point.position == position; });
  if (!known) points.push_back({.position = position, .kind = kind});
}

}  // namespace

Resumption::Resumption(const models::Model& model, cache::PagePool& pool,
                       cache::PrefixCache* prefixes, bool snapshots, size_t snapshot_every_pages)
    : model_(model),
      pool_(pool),
      prefixes_(prefixes),
      snapshots_(snapshots),
      grid_tokens_(snapshot_every_pages * cache::kTokensPerPage) {}

bool Resumption::keeps(const Sequence& sequence) const {
  return prefixes_ != nullptr && sequence.request().keep;
}

// The decoder may begin there when logits are needed from `first_wanted` on.
uint64_t Resumption::decoder_start(uint64_t first_wanted) const {
  const uint64_t tail = model_.decoder_tail();
  return tail == 0 || first_wanted + 1 <= tail ? 0 : first_wanted + 1 - tail;
}

// First position from `from` on whose state shall be exact: logits, or a point that was asked for.
uint64_t Resumption::first_exact(const Sequence& sequence, uint64_t from) const {
  uint64_t first = sequence.first_wanted(from);
  if (!snapshots_ || !keeps(sequence) || !has_frontier()) return first;
  for (size_t position : sequence.request().resume_points) {
    if (position > from) first = std::min<uint64_t>(first, position);
  }
  return first;
}

// Under which start the lease's snapshot is right; none: it is not.
std::optional<models::SequenceStart> Resumption::right_start(const Sequence& /*sequence*/,
                                                             const Lease& lease,
                                                             uint64_t first_wanted) const {
  models::SequenceStart start = lease.start();
  const uint64_t tail = model_.decoder_tail();
  if (tail == 0) return start;
  const uint64_t latest = decoder_start(first_wanted);
  if (latest >= lease.resume() && latest >= start.decoder) {
    start.decoder = latest;
    return start;
  }
  if (start.decoder == 0 || first_wanted + 1 >= start.decoder + tail) return start;
  return std::nullopt;
}

bool Resumption::use_snapshot(const Sequence& sequence, Lease lease, ResumePoint& point) const {
  const bool any = point.approximate;
  while (lease.resume() > 0) {
    const uint64_t at = lease.resume();
    auto start = right_start(sequence, lease, first_exact(sequence, at));
    if (!start) start = right_start(sequence, lease, sequence.first_wanted(at));
    if (start && !inside_image(*sequence.record, at)) {
      point.kind = has_frontier() ? ResumePoint::Kind::snapshot : ResumePoint::Kind::pages;
      point.tokens = point.restored = at;
      point.start = *start;
      point.lease = std::move(lease);
      return true;
    }
    const uint64_t below = std::min(at - 1, outside_images(*sequence.record, at - 1));
    lease =
        prefixes_->lookup(sequence.key(), below, any ? Exactness::approximate : Exactness::exact);
  }
  return false;
}

// Computes windows again from entries, when that takes fewer rows than what `point` says.
void Resumption::use_entries(const Sequence& sequence, uint64_t limit, ResumePoint& point) const {
  const uint64_t replay = model_.exact_replay();
  const uint64_t bounded = model_.bounded_replay();
  const bool exact = replay > 0 && replay != UINT64_MAX;
  if (!exact && !point.approximate) return;
  Lease lease = prefixes_->lookup(sequence.key(), limit,
                                  point.approximate ? Exactness::approximate : Exactness::exact);
  const uint64_t matched = outside_images(*sequence.record, lease.matched());
  if (matched != lease.matched() || matched == 0) return;
  const size_t wanted = sequence.request().replay_tokens;
  const uint64_t again = point.approximate ? (wanted > 0 ? wanted : bounded) - 1 : replay;
  if (matched <= again || matched - again <= point.tokens) return;
  const uint64_t from = outside_images(*sequence.record, matched - again);
  if (from <= point.tokens) return;
  point.kind = point.approximate ? ResumePoint::Kind::replay : ResumePoint::Kind::pages;
  point.tokens = from;
  point.restored = matched;
  // The state at the end of what was known is worth a snapshot, so it shall be exact too.
  const bool snapshot = snapshots_ && keeps(sequence);
  uint64_t decoder = decoder_start(snapshot ? matched : first_exact(sequence, matched));
  if (point.approximate) {
    const uint64_t last = sequence.ids.size() - 1;
    decoder = std::min(sequence.first_wanted(from), last > again ? last - again : 0);
  }
  point.start = {.window = from, .decoder = std::max(from, decoder), .entries = matched};
  if (model_.decoder_tail() == 0) point.start.decoder = 0;
  point.lease = std::move(lease);
}

// Positions ahead at which the frontier is worth keeping.
void Resumption::add_points(const Sequence& sequence, uint64_t branch, ResumePoint& point) const {
  if (!snapshots_ || !keeps(sequence) || !has_frontier()) return;
  const uint64_t end = sequence.prompt_size() - 1;
  std::vector<SnapshotPoint> points;
  add_point(points, end, SnapshotKind::prompt);
  for (size_t position : sequence.request().resume_points) {
    add_point(points, position, SnapshotKind::system);
  }
  if (branch > 0) add_point(points, branch, SnapshotKind::branch);
  if (grid_tokens_ > 0) {
    for (uint64_t position = (point.tokens / grid_tokens_ + 1) * grid_tokens_;
         position + kPointDistance < end; position += grid_tokens_) {
      add_point(points, position, SnapshotKind::grid);
    }
  }
  std::erase_if(points, [&](const SnapshotPoint& one) {
    return one.position <= point.tokens || one.position > end ||
           inside_image(*sequence.record, one.position) || one.position < point.restored;
  });
  std::ranges::sort(points, {}, &SnapshotPoint::position);
  point.points = std::move(points);
}

// The best point among those that are `point.approximate` or exact. Returns how many tokens at the
// head of the sequence are known.
uint64_t Resumption::search(const Sequence& sequence, uint64_t limit, ResumePoint& point) const {
  Lease lease = prefixes_->lookup(sequence.key(), limit,
                                  point.approximate ? Exactness::approximate : Exactness::exact);
  const uint64_t matched = lease.matched();
  point.not_reused = cache::miss_reason_name(lease.miss());
  use_snapshot(sequence, std::move(lease), point);
  use_entries(sequence, limit, point);
  if (point.tokens == limit) point.not_reused.clear();
  return matched;
}

ResumePoint Resumption::find(const Sequence& sequence) const {
  const Request& request = sequence.request();
  ResumePoint point;
  uint64_t branch = 0;
  if (prefixes_ != nullptr && request.resume != Resume::none && !sequence.starts_cold) {
    const uint64_t last = sequence.ids.size() - 1;
    const uint64_t limit =
        outside_images(*sequence.record, std::min<uint64_t>(last, sequence.first_wanted(0)));
    const uint64_t matched = search(sequence, limit, point);
    if (matched > point.tokens + kPointDistance) branch = matched;
    if (request.resume == Resume::replay && model_.bounded_replay() > 0 && point.tokens < limit) {
      ResumePoint replayed;
      replayed.approximate = true;
      search(sequence, limit, replayed);
      if (replayed.tokens > point.tokens) {
        point = std::move(replayed);
        branch = 0;
      }
    }
    if (point.tokens == limit && limit < last) point.not_reused = "prompt log-probabilities";
  } else {
    point.not_reused = request.resume == Resume::none ? "not asked for"
                       : sequence.starts_cold         ? "the resume point failed, or found no page"
                                                      : "the prefix cache is off";
  }
  if (point.kind == ResumePoint::Kind::cold) {
    uint64_t first = first_exact(sequence, 0);
    if (branch > 0 && snapshots_ && keeps(sequence)) first = std::min(first, branch);
    point.start.decoder = decoder_start(first);
  }
  add_points(sequence, branch, point);
  return point;
}

bool Resumption::hint(Sequence& sequence) const {
  if (prefixes_ == nullptr || sequence.hint.version == version_) return false;
  const size_t free = free_pages();
  const ResumePoint point = find(sequence);
  sequence.hint = {.version = version_,
                   .tokens = point.tokens,
                   .shared_tokens = point.restored / cache::kTokensPerPage * cache::kTokensPerPage,
                   .pinned_pages = free - std::min(free, free_pages())};
  return true;
}

Result<void> Resumption::begin(Sequence& sequence) {
  check(sequence.resume.has_value(), "a sequence starts without a plan");
  ResumePoint point = std::move(*std::exchange(sequence.resume, std::nullopt));
  sequence.cache.emplace(&pool_);
  Result<void> restored;
  if (point.restored > 0) {
    make_free(1);  // for the copy of a page that is partly used
    restored = point.kind == ResumePoint::Kind::snapshot || point.restored == point.tokens
                   ? prefixes_->restore(point.lease, *sequence.cache)
                   : prefixes_->restore_entries(point.lease, *sequence.cache);
  }
  if (!restored.ok()) {
    sequence.cache.reset();
    return restored;
  }
  if (point.restored > point.tokens) sequence.cache->set_length(point.tokens);
  sequence.start = point.start;
  sequence.approximate = point.approximate;
  sequence.restored = point.restored;
  sequence.shared_tokens = point.restored / cache::kTokensPerPage * cache::kTokensPerPage;
  sequence.points = std::move(point.points);
  if (sequence.preemptions > 0) return {};
  static constexpr const char* kNames[] = {"cold", "snapshot", "pages", "replay"};
  sequence.resumed = kNames[static_cast<size_t>(point.kind)];
  sequence.not_reused = std::move(point.not_reused);
  sequence.cached_tokens = point.tokens;
  return {};
}

uint64_t Resumption::rows_to_point(const Sequence& sequence, uint64_t position) {
  for (const SnapshotPoint& point : sequence.points) {
    if (point.position > position) return point.position - position;
  }
  return 0;
}

void Resumption::advanced(Sequence& sequence) {
  const uint64_t length = sequence.cached();
  const Exactness exactness = sequence.approximate ? Exactness::approximate : Exactness::exact;
  while (!sequence.points.empty() && sequence.points.front().position <= length) {
    const SnapshotPoint point = sequence.points.front();
    sequence.points.erase(sequence.points.begin());
    if (point.position != length) continue;
    prefixes_->snapshot(sequence.key(), *sequence.cache, length, sequence.start, point.kind,
                        exactness);
    ++version_;
  }
  // Others may share the prompt from now on.
  const bool prompt_done = sequence.stage == Stage::prefilling && sequence.pending() <= 1 &&
                           length >= sequence.prompt_size();
  if (prompt_done && keeps(sequence)) {
    prefixes_->insert(sequence.key(), *sequence.cache, sequence.prompt_size(), exactness);
    ++version_;
  }
}

void Resumption::keep(Sequence& sequence, SnapshotKind kind) {
  if (!keeps(sequence) || !sequence.cache || sequence.cached() == 0) return;
  // While windows are computed again from restored entries there is nothing new to keep.
  if (sequence.cached() < sequence.start.entries) return;
  const Exactness exactness = sequence.approximate ? Exactness::approximate : Exactness::exact;
  const uint64_t length = std::min(sequence.cached(), sequence.ids.size());
  if (snapshots_ && has_frontier() && length == sequence.cached()) {
    prefixes_->snapshot(sequence.key(), *sequence.cache, length, sequence.start, kind, exactness);
  } else {
    prefixes_->insert(sequence.key(), *sequence.cache, length, exactness);
  }
  ++version_;
}

size_t Resumption::make_free(size_t pages) {
  if (pool_.free_count() >= pages || prefixes_ == nullptr) return pool_.free_count();
  const size_t free = prefixes_->make_free(pages);
  ++version_;
  return free;
}

bool Resumption::forget_all() {
  if (prefixes_ == nullptr || prefixes_->pages() == 0) return false;
  prefixes_->clear();
  ++version_;
  return true;
}

size_t Resumption::free_pages() const {
  return pool_.free_count() + (prefixes_ != nullptr ? prefixes_->evictable_pages() : 0);
}

}  // namespace deepinfer::engine
