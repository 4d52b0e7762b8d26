#pragma once

// How much memory the engine of an Llm gets, and what its prefix cache is keyed by.
//
// Threads: pure functions.

#include <cstddef>
#include <cstdint>

#include "base/hash.h"
#include "base/result.h"
#include "models/model.h"
#include "weights/checkpoint.h"

namespace deepinfer::llm {

struct EngineSize {
  uint64_t cache_bytes = 0;     // of pages
  uint64_t snapshot_bytes = 0;  // of frontiers; 0 where sequences have none
};

struct SizeRequest {
  uint64_t memory = 0;          // that this process may use
  uint64_t cache_bytes = 0;     // asked for; 0: a quarter of the memory, or what is spare
  uint64_t snapshot_bytes = 0;  // asked for; 0: a thirty-second of the memory
  size_t longest = 0;           // tokens that one sequence must be able to hold
};

// Beside the model's own bytes a tenth of the memory stays free. Pages for `longest` and snapshots
// for 16 frontiers are given whatever the memory.
EngineSize size_engine(const models::Model& model, const SizeRequest& request);

// Hash of the weights and of everything that decides which bits a cache entry has.
Result<Hash128> cache_identity(const weights::Checkpoint& checkpoint, const models::Model& model,
                               const models::ModelOptions& options);

}  // namespace deepinfer::llm
