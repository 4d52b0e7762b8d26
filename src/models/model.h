#pragma once

// Model: one family's forward pass over a ragged batch. Prefill chunks, decode rows and rows that
// verify a draft take the same path; what differs is the number of rows of a sequence.
//
// Bits: the logits of a row depend on the weights, the row's id and position and the sequence's
// cache only; never on the other sequences, the chunking or the threads.
//
// Threads: forward() from one thread at a time; it uses the pool that the model was created with.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cache/page_pool.h"
#include "cache/sequence_start.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"
#include "weights/checkpoint.h"
#include "weights/model_config.h"

namespace deepinfer::models {

using SequenceStart = cache::SequenceStart;

// Set by the engine, read by the model.
struct StepBatch {
  std::span<const int32_t> ids;                   // [rows], each < vocab
  std::span<const uint64_t> positions;            // [rows], consecutive within a sequence
  std::span<const uint32_t> row_start;            // [sequences + 1], first row of each sequence
  std::span<const uint8_t> want_logits;           // [rows], 1 where logits are read
  std::span<cache::SequenceCache* const> caches;  // [sequences], reserved for all rows
  std::span<const SequenceStart> starts = {};     // [sequences], or empty: all zero
  // [rows], or empty: no images. Not null: the row is a position of an image (its start, newlines
  // and end too), this is its embedding [hidden], and its id is not read.
  std::span<const float* const> embeddings = {};
};

// Set by the model, read by the engine. Kept from step to step: the buffer only grows.
struct StepOutput {
  Buffer logits;  // [wanted_rows][vocab] float, in row order; may be larger
  size_t wanted_rows = 0;
  const float* row(size_t index, size_t vocab) const { return logits.as<float>() + index * vocab; }
};

// Cache rows in the family's official formats, which are what the official code computes with, or
// unrounded. The classic families and V3: official is BF16 rows. It also governs the rounding of
// the indexer's queries and keys.
enum class KvMode { official, f32 };

struct ModelOptions {
  kernels::Target target;
  KvMode kv = KvMode::official;
  size_t max_rows = 512;  // the largest batch that forward() will see
  // Bytes of memory for routed experts (and Engram rows) that are fetched from disk when needed;
  // 0: all weights are resident.
  uint64_t stream_bytes = 0;
  // The class of every id, [vocab], for Engram (spec v41.md 4.8), from whoever knows the tokenizer;
  // asked only when the checkpoint has Engram layers and no engram.json.
  std::function<Result<std::vector<int32_t>>(size_t vocab)> engram_classes = {};
};

// Where the time of a step goes; filled while profiling is on.
struct OperationTime {
  std::string name;  // "qkv", "attention", "ffn up", ...
  double seconds = 0;
  uint64_t calls = 0;
  uint64_t weight_bytes = 0;
  double operations = 0;  // multiply and add count as two
  // Of these, what products on int8 activations computed (twice what the model asked for where
  // activations are refined).
  double int8_signed = 0;
  double int8_unsigned = 0;
};

// Reads of weights that are not resident, since the model was opened; all zero without any.
struct StreamCounters {
  uint64_t hits = 0;    // experts that were in memory
  uint64_t misses = 0;  // experts that were read from disk
  uint64_t bytes_read = 0;
  double wait_seconds = 0;  // computing waited for the disk
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const weights::ModelConfig& config() const = 0;
  virtual const cache::CacheLayout& cache_layout() const = 0;
  // Bytes of weights that one decoded token reads.
  virtual size_t weight_bytes_per_step() const = 0;
  // Last positions of a prompt that must run the decoder layers so that its last logits, and all
  // later tokens, come out exactly as if all had (SequenceStart::decoder); 0: no such layers, every
  // position runs every layer.
  virtual uint64_t decoder_tail() const { return 0; }
  // Positions before a resume point from which on rows must run again (SequenceStart::window, with
  // all entries restored) so that everything from the resume point on comes out exactly as if
  // computed in full; 0: entries are all there is to a past; UINT64_MAX: windows cannot be computed
  // again from entries, only a snapshot of the frontier helps.
  virtual uint64_t exact_replay() const { return 0; }
  // Last positions of a prompt that a bounded replay computes when all entries are restored
  // (approximate by design, spec v41.md 5.3); 0: not for this family.
  virtual uint64_t bounded_replay() const { return 0; }
  // Drafted rows that a step may append and set_length() then forget; 0: only whole steps.
  virtual size_t rollback_rows() const { return SIZE_MAX; }
  // Bytes the model holds in all (weights and workspace).
  virtual size_t resident_bytes() const = 0;
  virtual const std::vector<kernels::Choice>& choices() const = 0;
  virtual StreamCounters stream_counters() const { return {}; }

  // Writes the cache entries of all rows and the wanted logits. Does not change length() of the
  // caches. Fails (internal, naming layer and operation) when a value is NaN or infinite. A step
  // that fails leaves every frontier as it was and entries below length() untouched: the same rows
  // can be computed again, together or sequence by sequence.
  virtual Result<void> forward(const StepBatch& batch, StepOutput& output) = 0;

  virtual void set_profiling(bool on) = 0;
  virtual std::vector<OperationTime> take_profile() = 0;
};

// Bytes of weights packed so far and in all.
using Progress = std::function<void(size_t done, size_t total)>;

// Opens the family that the checkpoint's configuration names. The checkpoint and the pool must
// outlive the model. `progress` may be empty; it is called on this thread. An error names the
// tensor.
Result<std::unique_ptr<Model>> open_model(const weights::Checkpoint& checkpoint,
                                          const ModelOptions& options, ThreadPool& pool,
                                          const Progress& progress = {});

}  // namespace deepinfer::models
