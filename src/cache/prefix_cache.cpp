#include "cache/prefix_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cache/prefix_tree.h"
#include "cache/snapshot_store.h"

namespace deepinfer::cache {

std::string_view miss_reason_name(MissReason reason) {
  switch (reason) {
    case MissReason::none:
      return "none";
    case MissReason::unknown:
      return "unknown tokens";
    case MissReason::no_snapshot:
      return "no snapshot";
    case MissReason::disabled:
      return "disabled";
  }
  return "";
}

struct PrefixCache::State {
  State(PagePool& page_pool, const Options& options)
      : pool(page_pool),
        max_pages(options.max_pages == 0 ? page_pool.page_count() : options.max_pages),
        store(options.max_snapshot_bytes),
        tree(page_pool, store, options.identity,
             options.hasher != nullptr ? options.hasher : chain_hash) {}

  bool has_frontier() const { return pool.layout().frontier_bytes() > 0; }
  void keep_within_pages() {
    while (tree.nodes() > max_pages && tree.evict_any()) {
    }
  }
  bool keep(const PrefixTree::Match& match, const SequenceCache& cache, const SequenceStart& start,
            SnapshotKind kind, Exactness exactness);
  bool make_snapshot_room(size_t bytes, SnapshotKind kind, double worth);

  PagePool& pool;
  size_t max_pages;
  SnapshotStore store;
  PrefixTree tree;
  Counters counters;  // but for the evictions
  uint64_t outbid_snapshots = 0;
  size_t leases = 0;
};

struct PrefixCache::Lease::State {
  PrefixCache::State* cache = nullptr;
  std::vector<PageId> pages;  // [pages_for(matched)], a reference and a lease of each
  uint64_t matched = 0;
  uint64_t resume = 0;
  SequenceStart start;
  Exactness exactness = Exactness::exact;
  MissReason miss = MissReason::unknown;
  std::shared_ptr<const Snapshot> snapshot;  // null: no frontier, or nothing to resume
  uint64_t approximate_from = UINT64_MAX;    // first token of an approximate page

  State(PrefixCache::State& owner, const PrefixTree::Match& match) : cache(&owner) {
    ++cache->leases;
    pages.reserve(match.path.size() + 1);
    for (const PrefixNode* node : match.path) take(*node);
    if (match.last != nullptr) take(*match.last);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    --cache->leases;
    for (size_t i = pages.size(); i-- > 0;) {
      cache->tree.end_lease(pages[i]);
      cache->pool.release(pages[i]);
    }
  }

 private:
  void take(const PrefixNode& node) {
    if (node.exactness == Exactness::approximate) {
      approximate_from = std::min<uint64_t>(approximate_from, pages.size() * kTokensPerPage);
    }
    pages.push_back(node.page);
    cache->tree.lease(node.page);
    cache->pool.retain(node.page);
  }
};

PrefixCache::Lease::Lease() = default;
PrefixCache::Lease::~Lease() = default;
PrefixCache::Lease::Lease(Lease&& other) noexcept = default;
PrefixCache::Lease& PrefixCache::Lease::operator=(Lease&& other) noexcept = default;

uint64_t PrefixCache::Lease::matched() const { return state_ ? state_->matched : 0; }
uint64_t PrefixCache::Lease::resume() const { return state_ ? state_->resume : 0; }
const SequenceStart& PrefixCache::Lease::start() const {
  static const SequenceStart kCold;
  return state_ ? state_->start : kCold;
}
Exactness PrefixCache::Lease::exactness() const {
  return state_ ? state_->exactness : Exactness::exact;
}
MissReason PrefixCache::Lease::miss() const { return state_ ? state_->miss : MissReason::disabled; }

PrefixCache::PrefixCache(PagePool& pool, const Options& options)
    : state_(std::make_unique<State>(pool, options)) {}

PrefixCache::~PrefixCache() { check(state_->leases == 0, "a lease outlives the prefix cache"); }

PrefixCache::Lease PrefixCache::lookup(const PrefixKey& key, uint64_t limit, Exactness wanted) {
  check(limit <= key.ids.size(), "limit beyond the ids of a prefix key");
  PrefixTree& tree = state_->tree;
  const PrefixTree::Match match = tree.find(key, limit, wanted);
  tree.touch(match);
  Lease lease;
  lease.state_ = std::make_unique<Lease::State>(*state_, match);
  Lease::State& found = *lease.state_;
  found.matched = match.tokens();
  if (!state_->has_frontier()) {
    found.resume = found.matched;
  } else if (Snapshot* snapshot = tree.deepest_resume(match, wanted); snapshot != nullptr) {
    found.snapshot = state_->store.share(snapshot);
    found.resume = snapshot->position;
    found.start = snapshot->start;
    found.exactness = snapshot->exactness;
    const uint64_t saved = tree.distance_to_previous(snapshot->below, snapshot->text.view());
    state_->store.renew(snapshot, snapshot->kind, saved);
  }
  if (found.resume > found.approximate_from) found.exactness = Exactness::approximate;
  if (found.resume < found.matched) {
    found.miss = MissReason::no_snapshot;
  } else {
    found.miss = found.matched < limit ? MissReason::unknown : MissReason::none;
  }
  ++state_->counters.lookups;
  state_->counters.tokens_asked += limit;
  state_->counters.tokens_matched += found.matched;
  return lease;
}

Result<void> PrefixCache::restore(const Lease& lease, SequenceCache& cache) {
  if (lease.resume() == 0) return {};
  const Lease::State& found = *lease.state_;
  check(found.cache == state_.get(), "lease of another prefix cache");
  TRY(cache.adopt(found.pages, found.resume));
  if (const Snapshot* snapshot = found.snapshot.get(); snapshot != nullptr) {
    std::memcpy(cache.frontier(), snapshot->bytes.data(), snapshot->bytes.size());
    if (snapshot->pinned && state_->store.holds(snapshot)) {
      const uint64_t saved =
          state_->tree.distance_to_previous(snapshot->below, snapshot->text.view());
      state_->store.unpin(const_cast<Snapshot*>(snapshot), saved);
    }
  }
  ++state_->counters.restores;
  state_->counters.tokens_resumed += found.resume;
  return {};
}

Result<void> PrefixCache::restore_entries(const Lease& lease, SequenceCache& cache) {
  if (lease.matched() == 0) return {};
  const Lease::State& found = *lease.state_;
  check(found.cache == state_.get(), "lease of another prefix cache");
  TRY(cache.adopt(found.pages, found.matched));
  ++state_->counters.restores;
  state_->counters.tokens_resumed += found.matched;
  return {};
}

void PrefixCache::insert(const PrefixKey& key, const SequenceCache& cache, uint64_t length,
                         Exactness exactness) {
  check(length <= cache.length(), "insert of tokens that are not computed");
  check(&cache.pool() == &state_->pool, "insert of pages of another pool");
  state_->tree.put(key, cache.pages(), length, exactness);
  state_->keep_within_pages();
}

bool PrefixCache::State::make_snapshot_room(size_t bytes, SnapshotKind kind, double worth) {
  if (bytes > store.max_bytes()) return false;
  while (store.bytes() + bytes > store.max_bytes()) {
    Snapshot* victim = store.least_valuable();
    if (victim == nullptr) return false;
    if (victim->worth > worth && kind != SnapshotKind::preempted) {
      store.grow_old(worth);
      return false;
    }
    store.grow_old(victim->worth);
    tree.forget(victim);
    ++outbid_snapshots;
  }
  return true;
}

bool PrefixCache::State::keep(const PrefixTree::Match& match, const SequenceCache& cache,
                              const SequenceStart& start, SnapshotKind kind, Exactness exactness) {
  const PrefixNode* last = match.last != nullptr ? match.last : match.deepest();
  const size_t count = match.last != nullptr ? match.last_count : kTokensPerPage;
  const PageView text = last->text.view().first(count);
  Snapshot* approximate = tree.resume_at(match, Exactness::approximate);
  Snapshot* known = tree.resume_at(match, Exactness::exact);
  if (known == nullptr && exactness == Exactness::approximate) known = approximate;
  const uint64_t distance = tree.distance_to_previous(last->parent, text);
  if (known != nullptr) {
    store.renew(known, kind, distance);
    return true;
  }
  // Replaced, not kept beside: what resumes there is exact from now on.
  if (approximate != nullptr) tree.forget(approximate);
  const std::span<const std::byte> frontier = cache.frontier_bytes();
  if (!make_snapshot_room(frontier.size(), kind, store.worth_now(kind, distance))) return false;
  auto snapshot = std::make_unique<Snapshot>();
  snapshot->below = last->parent;
  snapshot->text.assign(text);
  snapshot->exactness = exactness;
  snapshot->position = match.tokens();
  snapshot->start = start;
  snapshot->kind = kind;
  tree.attach(match, store.add(std::move(snapshot), frontier, distance));
  return true;
}

bool PrefixCache::snapshot(const PrefixKey& key, const SequenceCache& cache, uint64_t length,
                           const SequenceStart& start, SnapshotKind kind, Exactness exactness) {
  check(length <= cache.length(), "snapshot of tokens that are not computed");
  check(&cache.pool() == &state_->pool, "snapshot of pages of another pool");
  const PrefixTree::Match match = state_->tree.put(key, cache.pages(), length, exactness);
  if (!state_->has_frontier()) {
    state_->keep_within_pages();
    return true;
  }
  bool kept = false;
  if (length > 0 && match.tokens() == length) {
    kept = state_->keep(match, cache, start, kind, exactness);
    const uint64_t before = state_->tree.dropped_snapshots();
    state_->keep_within_pages();
    // The budget of pages may have taken the very page.
    if (state_->tree.dropped_snapshots() != before) {
      const PrefixTree::Match now = state_->tree.find(key, length, exactness);
      kept = now.tokens() == length && (state_->tree.resume_at(now, Exactness::exact) != nullptr ||
                                        state_->tree.resume_at(now, exactness) != nullptr);
    }
  }
  ++(kept ? state_->counters.snapshots : state_->counters.snapshots_refused);
  return kept;
}

void PrefixCache::unpin(const PrefixKey& key, uint64_t length) {
  for (const Exactness exactness : {Exactness::exact, Exactness::approximate}) {
    const PrefixTree::Match match = state_->tree.find(key, length, exactness);
    if (match.tokens() != length) continue;
    Snapshot* snapshot = state_->tree.resume_at(match, exactness);
    if (snapshot == nullptr) continue;
    const uint64_t saved =
        state_->tree.distance_to_previous(snapshot->below, snapshot->text.view());
    state_->store.unpin(snapshot, saved);
  }
}

size_t PrefixCache::make_free(size_t pages) {
  while (state_->pool.free_count() < pages && state_->tree.evict_idle()) {
  }
  return state_->pool.free_count();
}

size_t PrefixCache::evictable_pages() const {
  return state_->tree.nodes() - state_->tree.blocked_nodes();
}

void PrefixCache::clear() { state_->tree.clear(); }

const PrefixCache::Counters& PrefixCache::counters() const {
  Counters& counters = state_->counters;
  counters.evicted_pages = state_->tree.evicted_pages();
  counters.evicted_snapshots = state_->outbid_snapshots + state_->tree.dropped_snapshots();
  return counters;
}
size_t PrefixCache::pages() const { return state_->tree.nodes(); }
size_t PrefixCache::idle_pages() const {
  return state_->tree.nodes() - state_->tree.shared_nodes();
}
uint64_t PrefixCache::snapshot_bytes() const { return state_->store.bytes(); }
size_t PrefixCache::nodes() const { return state_->tree.nodes(); }
void PrefixCache::check_invariants() const {
  state_->pool.check_invariants();
  state_->tree.check_invariants();
}

}  // namespace deepinfer::cache
