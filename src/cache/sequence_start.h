#pragma once

// SequenceStart: what exists of a sequence's past. Constant while the sequence lives; all zero for
// a sequence computed in full. Travels with a snapshot of the frontier, which is only right under
// the start that it was computed with. Source: spec v41.md 4.9, 5.3.
//
// Threads: a plain value.

#include <cstdint>

namespace deepinfer::cache {

struct SequenceStart {
  // First position whose window rows exist: a resumed sequence was restored from its growing
  // entries and computes from here with empty windows.
  uint64_t window = 0;
  // First position that runs the decoder layers (V4.1): rows below only feed the shared cache, and
  // the decoder's windows start here. Rows below must not want logits.
  uint64_t decoder = 0;
  // Growing entries of tokens below were restored: they are read and not written.
  uint64_t entries = 0;
  bool operator==(const SequenceStart&) const = default;
};

}  // namespace deepinfer::cache
