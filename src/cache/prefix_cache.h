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
// Invariants (check_invariants() asserts them): see the top of prefix_tree_check.cpp.
//
// Threads: the engine's thread. restore(), restore_entries() and snapshot() copy bytes that a step
// may be writing: they run between steps.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "cache/page_pool.h"
#include "cache/prefix_key.h"
#include "cache/sequence_start.h"

namespace deepinfer::cache {

struct PageView;

// Why a lookup did not reach further.
enum class MissReason {
  none,         // all that was asked for
  unknown,      // the tokens after the match were never computed, or are gone
  no_snapshot,  // entries reach further, but no resume point does
  disabled,
};
std::string_view miss_reason_name(MissReason reason);

class PrefixCache {
 public:
  struct Options {
    // Part of every key: digest of the weights, cache formats and their version.
    Hash128 identity = {};
    size_t max_pages = 0;             // that the tree may hold; 0: all pages of the pool
    uint64_t max_snapshot_bytes = 0;  // frontiers, in memory; 0: none are kept
    // Of a complete page and all before it; null: chain_hash(). For tests of collisions.
    Hash128 (*hasher)(const Hash128& parent, const PageView& page) = nullptr;
  };
  // The pool must outlive the cache; one cache on a pool.
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
    // Of what restore() gives: approximate when some page or the frontier is, and so is all that
    // is computed on top of it. restore_entries() is exact when the lookup wanted exact.
    Exactness exactness() const;
    MissReason miss() const;

   private:
    friend class PrefixCache;
    struct State;
    std::unique_ptr<State> state_;
  };

  // Looks for key.ids[0, limit): a prompt asks for one token less than it has, since the logits of
  // its last token are needed. Counts as a use. `wanted`: what may be used. limit <= ids.size().
  Lease lookup(const PrefixKey& key, uint64_t limit, Exactness wanted = Exactness::exact);

  // Gives the empty `cache` the lease's resume() tokens: shares the complete pages, copies a page
  // that is partly used and the frontier, and sets the length. Fails (exhausted) when no page is
  // free for the copy; `cache` is then empty as before. A preempted snapshot is taken by it.
  Result<void> restore(const Lease& lease, SequenceCache& cache);
  // As restore(), up to lease.matched() and without a frontier: for a bounded replay, which
  // computes the windows again.
  Result<void> restore_entries(const Lease& lease, SequenceCache& cache);

  // Tokens [0, length) of `cache` are computed and stand for good (no draft among them): makes them
  // known. Pages that are known already stay as they are, but exact ones replace approximate ones.
  // length <= cache.length().
  void insert(const PrefixKey& key, const SequenceCache& cache, uint64_t length,
              Exactness exactness = Exactness::exact);
  // Inserts, and keeps a copy of the frontier, which must be that of `length` tokens exactly.
  // Returns whether it was kept (or was there already): false when the budget has no room that is
  // worth less. A model without a frontier resumes anywhere: true. A preempted one stays while its
  // pages do, until it is taken.
  bool snapshot(const PrefixKey& key, const SequenceCache& cache, uint64_t length,
                const SequenceStart& start, SnapshotKind kind,
                Exactness exactness = Exactness::exact);

  // The sequence that was preempted at `length` will not come back.
  void unpin(const PrefixKey& key, uint64_t length);

  // Frees pages of the tree until `pages` of the pool are free or nothing more can go: the least
  // valuable first, by recency, tokens to compute again and bytes; never what a lease holds, and a
  // page that a sequence uses frees nothing. Returns the pool's free pages.
  size_t make_free(size_t pages);
  // Pages that make_free() could free now.
  size_t evictable_pages() const;
  // Forgets everything that no lease holds.
  void clear();

  struct Counters {
    uint64_t lookups = 0;  // a request may look more than once before it starts
    uint64_t tokens_asked = 0, tokens_matched = 0;  // by lookups
    uint64_t restores = 0, tokens_resumed = 0;      // what sequences were given, once each
    uint64_t snapshots = 0, snapshots_refused = 0;
    uint64_t evicted_pages = 0, evicted_snapshots = 0;
  };
  const Counters& counters() const;
  size_t pages() const;             // held by the tree
  size_t idle_pages() const;        // held by the tree alone; no sequence and no lease
  uint64_t snapshot_bytes() const;  // held by snapshots
  size_t nodes() const;
  void check_invariants() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer::cache
