#pragma once

// RowReader: logits of a step to tokens and scores, all rows at once. Rows do not depend on each
// other, so they are read in parallel and the results do not depend on the threads. A row behind a
// draft is read as if the draft stood; whoever uses the results looks at them in order.
//
// Threads: read() from one at a time; it runs on the pool.

#include <optional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "engine/sequence.h"
#include "engine/step_rows.h"
#include "speculation/verifier.h"

namespace deepinfer::engine {

// One row that is read. For choices that follow, the row of choice 0 is read once for each.
struct RowTask {
  const Sequence* sequence = nullptr;  // whose parameters and ids
  std::span<const float> logits;       // [vocab]
  uint64_t position = 0;
  bool scores = false;  // of the next prompt id; else a token comes out
  int32_t draft = -1;   // proposed after this row
  size_t drafts_before = 0;
  // Results.
  std::optional<Error> error;
  sampling::Sampled token;
  bool accepted = false;  // the draft stands
};

class RowReader {
 public:
  RowReader(kernels::Isa isa, speculation::Acceptance acceptance, ThreadPool* pool);

  // tasks: of a step. ids of their sequences end in the drafts while this runs.
  void read(std::span<RowTask> tasks);

 private:
  void read_one(RowTask& task, sampling::Workspace& workspace) const;

  kernels::Isa isa_;
  speculation::Acceptance acceptance_;
  ThreadPool* pool_;
  std::vector<sampling::Workspace> workspaces_;  // [threads]
};

// Whether the output of a sequence ends with its last token.
bool stops_now(const Sequence& sequence);

}  // namespace deepinfer::engine
