#pragma once

// Drafter: who proposes tokens. A proposal costs verified rows and never changes the text; see
// verifier.h for what stands.
//
// Threads: one thread at a time (the one that runs the steps).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cache/page_pool.h"

namespace deepinfer::speculation {

// What a drafter said about one sequence. Buffers are kept from step to step.
struct Draft {
  std::vector<int32_t> ids;  // proposals for the positions after the last known token, in order
  // [ids], estimated probability that the token stands given that those before it do; 1 when the
  // drafter has no estimate.
  std::vector<float> confidences;
  // [ids][vocab] log-probabilities that the ids were drawn with; empty: each id was certain.
  std::vector<float> log_probabilities;
  void clear() {
    ids.clear();
    confidences.clear();
    log_probabilities.clear();
  }
};

struct DraftTask {
  uint64_t sequence = 0;                  // stable name, from the first call to end()
  std::span<const int32_t> ids;           // prompt and output; the last one is not computed yet
  size_t most = 0;                        // proposals at most
  cache::SequenceCache* cache = nullptr;  // for drafters whose state lives in the frontier
  Draft* draft = nullptr;                 // filled
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual std::string_view name() const = 0;
  virtual size_t most() const = 0;  // proposals in a row
  // All sequences of a step together. A failure of the drafter leaves drafts empty: it costs speed
  // and no request.
  virtual Result<void> draft(std::span<DraftTask> tasks) = 0;
  // Tokens up to ids.size() stand (the accepted part of a draft included).
  virtual void committed(uint64_t sequence, std::span<const int32_t> ids) = 0;
  virtual void end(uint64_t sequence) = 0;  // unknown ones too
};

}  // namespace deepinfer::speculation
