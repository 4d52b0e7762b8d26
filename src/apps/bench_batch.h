#pragma once

// `bench batch`: tokens/s of many streams that decode together, beside the rate at which the same
// model reads a prompt.
//
// Threads: the main thread.

#include <cstddef>
#include <vector>

#include "apps/bench_report.h"
#include "apps/interrupt.h"
#include "base/result.h"
#include "llm/llm.h"

namespace deepinfer::apps {

// tokens/s of all streams together, 64 tokens each after prompts of 32, for every count; the limit
// is the median rate of reading one prompt of 512, measured in the same rounds. Notes say how many
// times one stream that is, and what the arithmetic takes of the machine's peaks (step_work.h).
// Fails (cancelled) when interrupted.
Result<std::vector<Measured>> measure_batch(llm::Llm& llm, kernels::Isa isa, size_t rounds,
                                            const std::vector<size_t>& stream_counts,
                                            const MachineLimits& limits, bool show_progress,
                                            const InterruptScope& interrupt);

}  // namespace deepinfer::apps
