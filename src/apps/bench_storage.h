#pragma once

// `bench start` and `bench stream`: what opening a model and reading weights from disk cost.
//
// Threads: the main thread.

#include <cstddef>
#include <string>

#include "apps/bench_report.h"
#include "apps/interrupt.h"
#include "base/result.h"
#include "llm/llm.h"

namespace deepinfer::apps {

// Milliseconds from the path to a model that could compute, against one second for 10 GB; memory
// against what the model states. The files' pages may be cached, as after any other start.
Result<Measured> measure_start(const std::string& path, const llm::LlmOptions& options,
                               size_t rounds);

// tokens/s of one stream whose experts come from disk, against the slower of two floors, measured
// beside every sample: the weights of a token read from memory, and what its misses read from the
// disk. A sample takes about two seconds, whatever the disk; before the first one the cache is
// warmed for ten at most. Fails (invalid) when the model streams nothing, (cancelled) when
// interrupted.
Result<Measured> measure_stream(llm::Llm& llm, kernels::Isa isa, size_t rounds, bool show_progress,
                                const InterruptScope& interrupt);

}  // namespace deepinfer::apps
