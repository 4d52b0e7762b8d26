#pragma once

// The paths of `selftest`: ways to compute the same logits. Every path of one instruction set and
// one numerics mode must give equal bits; between instruction sets and modes there is a tolerance.
//
// Threads: the main thread.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/isa.h"
#include "models/model.h"
#include "weights/checkpoint.h"

namespace deepinfer::apps {

struct Tolerance {
  double difference = 0;  // of one logit; 0: bits must be equal
  // Part of the positions that must keep it. Where a model chooses experts or cache entries, one
  // bit can change a choice, and that position's logits by far.
  double share = 1.0;
};

struct Comparison {
  std::string path;
  std::string against;
  bool equal = false;
  double max_difference = 0;  // of the share of the positions that differ least
  Tolerance tolerance;
};

// Logits of every position of one sequence.
struct Logits {
  size_t vocab = 0;
  std::vector<float> values;  // [positions][vocab]

  std::span<const float> row(size_t position) const {
    return {values.data() + position * vocab, vocab};
  }
  size_t positions() const { return vocab == 0 ? 0 : values.size() / vocab; }
};

// Compares as many positions as both have.
Comparison compare_logits(std::string path, const Logits& seen, std::string against,
                          const Logits& wanted, Tolerance tolerance);

// In `exact` the cache rows are kept as f32, so that nothing at all is rounded: between instruction
// sets one bit of a sum could otherwise move a BF16 row by a whole step.
struct Variant {
  kernels::Target target;
  size_t threads = 1;
  uint64_t stream_bytes = 0;  // 0: experts are resident
  bool operator==(const Variant&) const = default;
};

class PathRunner {
 public:
  PathRunner(const weights::Checkpoint& checkpoint, std::vector<int32_t> ids)
      : checkpoint_(&checkpoint), ids_(std::move(ids)) {}

  const std::vector<int32_t>& ids() const { return ids_; }

  // The first `count` ids as one sequence in chunks.
  Result<Logits> run(const Variant& variant, size_t count, size_t chunk);

  enum class Place { first, last };
  // The same sequence among two others that are shifted against it, all in the same steps, with
  // uneven chunks.
  Result<Logits> run_among_others(const Variant& variant, size_t count, Place place);

  // The model of a variant; the one of the last call is kept, with its workers.
  Result<models::Model*> open(const Variant& variant);
  ThreadPool& pool() { return *pool_; }  // of the model that is open

 private:
  const weights::Checkpoint* checkpoint_;
  std::vector<int32_t> ids_;
  Variant opened_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<models::Model> model_;
};

// "avx512 fast".
std::string variant_name(const Variant& variant);

}  // namespace deepinfer::apps
