#pragma once

// Resumption: how a sequence takes up work that was done before, and what of its own work is kept.
//
// Where a sequence may begin. L: its ids, q: the first position whose logits are needed (L - 1, or
// that of an inner point whose state shall be exact), T: Model::decoder_tail(), R:
// Model::exact_replay().
//
//   snapshot at p, taken under the decoder start d: right
//     - under d, when d = 0 or q >= d + T - 1: what the frontier lacks is out of reach by then;
//     - under q - T + 1, when that is p or more: the decoder's windows begin later anyway.
//     T = 0 makes each right.
//   entries of m tokens: computed again from m - R on, all from m on is exact; R = 0: from m on.
//   bounded replay: entries of m tokens, computed again from m + 1 - K on. Approximate, and what it
//     computes is only kept for those who ask for it.
//
// Whatever is right and computes the fewest rows is taken.
//
// Threads: see engine_core.h. find() and hint() read numbers of the sequence and the prefix cache,
// never its pages, so they may run while a step computes; the others may not.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cache/prefix_cache.h"
#include "engine/sequence.h"
#include "models/model.h"

namespace deepinfer::engine {

class Resumption {
 public:
  // prefixes: null without a prefix cache. snapshot_every_pages: of the grid; 0: none.
  Resumption(const models::Model& model, cache::PagePool& pool, cache::PrefixCache* prefixes,
             bool snapshots, size_t snapshot_every_pages);

  // Where a waiting sequence begins.
  ResumePoint find(const Sequence& sequence) const;
  // Brings sequence.hint up to date; false: it was.
  bool hint(Sequence& sequence) const;

  // Gives a waiting sequence its cache as sequence.resume says. Fails (exhausted) when pages are
  // missing; the sequence is then as before, without its resume point.
  Result<void> begin(Sequence& sequence);
  // Most rows that the next chunk may have, so that it ends at the next point; 0: any.
  static uint64_t rows_to_point(const Sequence& sequence, uint64_t position);
  // Its cache grew: keeps what the points and the end of the prompt call for.
  void advanced(Sequence& sequence);
  // It ends or gives way: what it computed stays in the prefix cache, if it is to be kept.
  void keep(Sequence& sequence, cache::SnapshotKind kind);

  // Frees pages until `pages` are free, as far as the prefix cache holds some. Returns the free
  // ones.
  size_t make_free(size_t pages);
  // Gives up everything that is kept; false: nothing was. The last resort: a page of the tree whose
  // followers are in use cannot be freed alone.
  bool forget_all();
  // Free, or could be made so.
  size_t free_pages() const;
  uint64_t version() const { return version_; }

 private:
  using Lease = cache::PrefixCache::Lease;
  std::optional<models::SequenceStart> right_start(const Sequence& sequence, const Lease& lease,
                                                   uint64_t first_wanted) const;
  uint64_t first_exact(const Sequence& sequence, uint64_t from) const;
  uint64_t decoder_start(uint64_t first_wanted) const;
  bool use_snapshot(const Sequence& sequence, Lease lease, ResumePoint& point) const;
  uint64_t search(const Sequence& sequence, uint64_t limit, ResumePoint& point) const;
  void use_entries(const Sequence& sequence, uint64_t limit, ResumePoint& point) const;
  void add_points(const Sequence& sequence, uint64_t branch, ResumePoint& point) const;
  bool keeps(const Sequence& sequence) const;
  bool has_frontier() const { return pool_.layout().frontier_bytes() > 0; }

  const models::Model& model_;
  cache::PagePool& pool_;
  cache::PrefixCache* prefixes_;
  bool snapshots_;
  uint64_t grid_tokens_;
  uint64_t version_ = 0;  // counts changes of what is kept
};

}  // namespace deepinfer::engine
