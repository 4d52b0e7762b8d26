#pragma once

// WindowCache: rows that a sequence keeps for its last positions only (window rows, raw rows of an
// unfinished compressor block), in rings of the frontier: position p in slot p % ring rows.
//
//   size_t ring = windows.add(layout, "layer 3 window", window, format.row_bytes());
//   ... every row of the step writes windows.fresh(ring, row) ...
//   ... attention reads older rows from the ring, those of the step from `fresh` ...
//   windows.commit(ring, runs);            // at the end of the step
//
// A chunk may be longer than the ring, so the rows of a step lie beside it until commit(); a step
// that fails leaves every ring as it was. A ring has kSpareRows (or more) rows beyond those that
// the next position reads: that many rows may be appended and forgotten again (a rejected draft).
//
// Threads: add() and create() when loading; fresh() rows by workers; the rest by the thread of
// forward().

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cache/layout.h"
#include "kernels/attention/latent_attention.h"
#include "models/step_runs.h"
#include "tensor/tensor.h"

namespace deepinfer::models {

class WindowCache {
 public:
  // Drafted rows that may be rolled back: 6, and two more to spare.
  static constexpr size_t kSpareRows = 8;

  // spare: at least kSpareRows, and the drafter's block + 1.
  explicit WindowCache(size_t spare) : spare_(spare) {}

  // Declares a ring that serves the `keep` positions before the one to compute. Returns its index.
  size_t add(cache::CacheLayout& layout, std::string name, size_t keep, size_t row_bytes);
  // Memory for the rows of a step; fails (exhausted) when there is none.
  Result<void> create(size_t max_rows);
  size_t bytes() const;
  size_t spare() const { return spare_; }

  // Where row `row` of the step keeps its row of `ring`, [row_bytes].
  std::byte* fresh(size_t ring, size_t row) {
    return rings_[ring].fresh.data() + row * rings_[ring].row_bytes;
  }
  size_t row_bytes(size_t ring) const { return rings_[ring].row_bytes; }
  // The row of `position`, of the step or older. Requires: it is kept.
  const std::byte* at(size_t ring, const StepRun& run, uint64_t position) const;
  // The window part of the query at `position`: the last `window` positions up to it, none below
  // `first`.
  void place(kernels::LatentQuery& query, size_t ring, const StepRun& run, uint64_t position,
             size_t window, uint64_t first) const;

  // The runs' last rows go into the ring.
  void commit(size_t ring, std::span<const StepRun> runs);

 private:
  struct Ring {
    size_t rows = 0;
    size_t row_bytes = 0;
    size_t offset = 0;  // in the frontier of a sequence
    Buffer fresh;       // [max_rows][row_bytes]
  };
  size_t spare_;
  std::vector<Ring> rings_;
};

}  // namespace deepinfer::models
