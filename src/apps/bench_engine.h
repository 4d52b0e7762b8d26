#pragma once

// `bench engine`: what the engine costs beside the model, and what prompts cost those who decode.
//
// Threads: the main thread.

#include <cstddef>
#include <vector>

#include "apps/bench_report.h"
#include "apps/interrupt.h"
#include "base/result.h"
#include "llm/llm.h"

namespace deepinfer::apps {

// For 1, 16 and 64 sequences, plain and overlapped, over a model whose steps take one millisecond
// and over the real one: the share of the time in which neither the model computes nor tokens are
// sampled ("bubble", %), with the time of planning a sequence.
// Mixed load on the real model: 16 streams decode while long prompts arrive at random (Poisson,
// about a third of what the machine can read): the 99th percentile of the gaps between tokens over
// their median, the throughput lost to the prompts beside it. target_step_ms: of the engine, 0:
// three times a step without prompts.
// Fails (cancelled) when interrupted.
enum class EngineParts { all, mixed_load };
Result<std::vector<Measured>> measure_engine(llm::Llm& llm, kernels::Isa isa, size_t rounds,
                                             EngineParts parts, double target_step_ms,
                                             bool show_progress, const InterruptScope& interrupt);

}  // namespace deepinfer::apps
