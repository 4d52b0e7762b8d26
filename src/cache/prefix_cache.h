#pragma once

// PrefixCache: prompts and outputs that were computed once, as a tree of pages, and the positions
// at which a new sequence can take up the work.
//
//   auto lease = prefixes->lookup(key, prompt.size() - 1);   // nothing is freed while it lives
//   if (lease.resume() > 0) TRY(prefixes->restore(lease, sequence_cache));
//   ...
//   prefixes->insert(key, sequence_cache, length, Exactness::exact);       // pages
//   prefixes->snapshot(key, sequence_cache, length, start);                // a resume point
//
// Node = one page of 128 tokens (the last one of a path may hold fewer), keyed by a chained hash of
// salt, model identity, ids and image contents; ids and contents are compared on a hit, so that a
// collision of hashes is a miss and never a wrong answer. Nodes and sequences share pages by
// reference counts. An entry never changes once its position is below the length at which it was
// inserted, so the sequence that computed a page goes on writing behind it; whoever resumes inside
// of a page gets a copy of that page.
//
// Resume point: a position with all entries below and, for models that have a frontier, a snapshot
// of it. Without a frontier every position is one.
//
// Invariants (check_invariants() asserts them): see the top of prefix_cache.cpp.
//
// Threads: the engine's thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "cache/page_pool.h"
#include "cache/sequence_start.h"

namespace deepinfer::cache {

// Positions that an image takes, and what it shows: the ids there are the same for every image.
struct ContentSpan {
  size_t start = 0;
  size_t count = 0;
  Hash128 content;
  bool operator==(const ContentSpan&) const = default;
};

// What a sequence's tokens are. The views must outlive the call only.
struct PrefixKey {
  std::span<const int32_t> ids;
  std::span<const ContentSpan> contents = {};  // ascending, apart
  uint64_t salt = 0;  // of the tenant: sequences of different salts never share
};

// Pages whose entries came out of a bounded replay are not those of a computation in full; only a
// lookup that allows it finds them.
enum class Exactness { exact, approximate };

// Why a lookup did not reach further.
enum class MissReason {
  none,         // all that was asked for
  unknown,      // the tokens after the match were never computed, or are gone
  no_snapshot,  // entries reach further, but no resume point does
  disabled,
};
std::string_view miss_reason_name(MissReason reason);

// Why a snapshot is worth keeping; the value of a resume point in eviction.
enum class SnapshotKind { prompt, output, system, branch, grid, preempted };

class PrefixCache {
 public:
  struct Options {
    // Part of every key: digest of the weights, cache formats and their version.
    Hash128 identity;
    size_t max_pages = 0;             // that the tree may hold; 0: all pages of the pool
    uint64_t max_snapshot_bytes = 0;  // frontiers, in memory; 0: none are kept
  };
  // The pool must outlive the cache.
  PrefixCache(PagePool& pool, const Options& options);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The result of a lookup. What it found stays while it lives. Movable; must end before the cache.
  class Lease {
   public:
    Lease();
    ~Lease();
    Lease(Lease&& other) noexcept;
    Lease& operator=(Lease&& other) noexcept;

    // Tokens at the head of the key whose entries are there.
    uint64_t matched() const;
    // The deepest resume point at or below both the limit and matched(); 0: none.
    uint64_t resume() const;
    // The start under which the resumed frontier was computed.
    const SequenceStart& start() const;
    MissReason miss() const;

   private:
    friend class PrefixCache;
    struct State;
    std::unique_ptr<State> state_;
  };

  // Looks for key.ids[0, limit): a prompt asks for one token less than it has, since the logits of
  // its last token are needed. Counts as a use. `wanted`: what may be used.
  Lease lookup(const PrefixKey& key, uint64_t limit, Exactness wanted = Exactness::exact);

  // Gives the empty `cache` the lease's resume() tokens: shares the complete pages, copies a page
  // that is partly used and the frontier, and sets the length. Fails (exhausted) when no page is
  // free for the copy; `cache` is then empty as before.
  Result<void> restore(const Lease& lease, SequenceCache& cache);
  // As restore(), up to lease.matched() and without a frontier: for a bounded replay, which
  // computes the windows again.
  Result<void> restore_entries(const Lease& lease, SequenceCache& cache);

  // Tokens [0, length) of `cache` are computed and stand for good (no draft among them): makes them
  // known. Pages that are known already stay as they are. length <= cache.length().
  void insert(const PrefixKey& key, const SequenceCache& cache, uint64_t length,
              Exactness exactness = Exactness::exact);
  // Inserts, and keeps a copy of the frontier, which must be that of `length` tokens exactly.
  // Returns whether it was kept (or was there already): false when the budget holds none.
  bool snapshot(const PrefixKey& key, const SequenceCache& cache, uint64_t length,
                const SequenceStart& start, SnapshotKind kind,
                Exactness exactness = Exactness::exact);

  // Frees pages of the tree until `pages` of the pool are free or nothing more can go: the least
  // valuable first, by recency, tokens to compute again and bytes; never what a lease holds, and a
  // page that a sequence uses frees nothing. Returns the pool's free pages.
  size_t make_free(size_t pages);
  // Pages that make_free() could free now.
  size_t evictable_pages() const;
  // Forgets everything that no lease holds.
  void clear();

  struct Counters {
    uint64_t lookups = 0;
    uint64_t tokens_asked = 0, tokens_matched = 0, tokens_resumed = 0;
    uint64_t snapshots = 0, snapshots_refused = 0;
    uint64_t evicted_pages = 0, evicted_snapshots = 0;
  };
  const Counters& counters() const;
  size_t pages() const;             // held by the tree
  uint64_t snapshot_bytes() const;  // held by snapshots
  size_t nodes() const;
  void check_invariants() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer::cache
