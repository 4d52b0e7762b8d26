#pragma once

// V4Compressor: what turns the tokens of a block of `ratio` into one entry of the compressed cache
// (source: spec v4.md 4.3). Every CSA and HCA layer has one of the head's dimension, and the
// indexer of a CSA layer one of its own.
//
//   a_t = kv x_t,  s_t = gate x_t + ape[t mod ratio]        rows (a | s), kept by position
//   entry k pools per channel, weights softmax(s): tokens ratio*k .. ratio*k + ratio-1; for ratio 4
//   the first halves of tokens 4k-4 .. 4k-1 and the second halves of 4k .. 4k+3 (k = 0: only these)
//   then rms_norm and rotation by position ratio*k
//
// The pending rows lie in a ring of the frontier (models/window_cache.h) that reaches back to the
// previous block: rolling back and resuming are a matter of the length alone.
//
// Bits: an entry depends on its tokens' rows only. Threads: from the thread of forward(), on the
// pool.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/attention/latent_rows.h"
#include "kernels/matmul.h"
#include "kernels/softmax_pool.h"
#include "models/matrix_loader.h"
#include "models/rope_rows.h"
#include "models/rounding.h"
#include "models/row_work.h"
#include "models/step_runs.h"
#include "models/window_cache.h"
#include "weights/deepseek/deepseek_tensors.h"

namespace deepinfer::models {

// The one ratio whose blocks overlap.
inline constexpr size_t kOverlapRatio = 4;

struct V4Compressor {
  size_t ratio = 0;
  size_t dim = 0;                  // of an entry
  kernels::PackedMatrix kv, gate;  // [width, hidden]
  std::vector<float> ape;          // [ratio][width]
  std::vector<float> norm;         // [dim]

  bool overlaps() const { return ratio == kOverlapRatio; }
  size_t width() const { return overlaps() ? 2 * dim : dim; }
  size_t bytes() const { return kv.bytes() + gate.bytes(); }
};
Result<V4Compressor> load_v4_compressor(const weights::CompressorTensors& tensors, size_t ratio,
                                        size_t dim, const std::string& name, MatrixLoader& loader);

// Bytes of a pending row (a | s) and how many positions back the next entry reaches.
size_t pending_row_bytes(size_t ratio, size_t dim);
size_t pending_rows_kept(size_t ratio);

// Where entries go: a growing stream whose pages hold the entries of 128 tokens.
struct EntryStore {
  kernels::LatentFormat format;
  size_t per_page = 0;
  bool hadamard = false;  // index keys in q4u
};

// Entries that are visible to a query at `position`: the token that completes a block sees it.
inline size_t entries_visible(uint64_t position, size_t ratio) {
  return static_cast<size_t>((position + 1) / ratio);
}

class V4EntryMaker {
 public:
  V4EntryMaker(kernels::Target target, Rounding rounding, float norm_eps, RowWork& work);
  // Memory for the pool's workers; ratio and dim are the largest that will be seen.
  void create(size_t threads, size_t ratio, size_t dim);

  // Adds ape to the step's rows of `ring`, whose halves are products by kv and gate.
  void finish_rows(const V4Compressor& compressor, WindowCache& windows, size_t ring,
                   std::span<const uint64_t> positions);
  // Writes the entries that the step's rows complete.
  void make(const V4Compressor& compressor, const WindowCache& windows, size_t ring,
            std::span<const StepRun> runs, const RopeRows& rope, const PageLists& pages,
            const EntryStore& store);

 private:
  struct Entry {
    const StepRun* run = nullptr;
    size_t index = 0;
  };
  struct Scratch {
    std::vector<const float*> scores, values;  // [slots]
    std::vector<float> entry;                  // [dim]
    std::vector<float> rotation;               // [dims]
  };
  size_t gather(const V4Compressor& compressor, const WindowCache& windows, size_t ring,
                const Entry& entry, Scratch& scratch) const;

  kernels::Target target_;
  Rounding rounding_;
  float norm_eps_;
  RowWork& work_;
  kernels::SoftmaxPool pool_entry_;
  std::vector<Scratch> scratch_;  // [threads]
  std::vector<Entry> entries_;    // of the step
};

}  // namespace deepinfer::models
