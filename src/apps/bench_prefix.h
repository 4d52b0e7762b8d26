#pragma once

// `bench prefix`: what a prompt costs whose head was computed before.
//
// Threads: the main thread.

#include <cstddef>
#include <vector>

#include "apps/bench_report.h"
#include "apps/interrupt.h"
#include "base/result.h"
#include "llm/llm.h"

namespace deepinfer::apps {

// Of prompts of `tokens` tokens (or what the context holds):
//   prefix 50, 90, 96: time to the first token cold, over that with so many per cent cached. The
//     limit is the one of rows: all tokens over those left.
//   prefix resume: milliseconds to the first token of a prompt that was computed before, for
//     lengths from 512 on, doubled.
// Each for exact resumption (the kind that the family has: "pages" or "snapshot") and, where the
// model has one, for bounded replay. Fails (cancelled) when interrupted.
Result<std::vector<Measured>> measure_prefix(llm::Llm& llm, kernels::Isa isa, size_t rounds,
                                             size_t tokens, bool show_progress,
                                             const InterruptScope& interrupt);

}  // namespace deepinfer::apps
