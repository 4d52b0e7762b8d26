#pragma once

// Engine: one replica. Prompts of token ids in, token ids out; no text. All requests run together:
// every step carries one row of each decoding sequence, rows that verify drafts, and chunks of
// prompts (scheduler.h). A request that cannot be served ends in an error of its own; the others
// never notice. What a request gets does not depend on its company, on the loop, on chunks, on
// preemption, on exact hits of the prefix cache, or on drafts: the same bits.
//
//   auto engine = TRY(Engine::create(model, options, system_clock()));
//   TRY(engine->add({.id = 7, .prompt = ids, .max_tokens = 64}));
//   while (engine->busy()) TRY(engine->step([&](Event event) { ... }));
//
// Pages: when a running sequence finds no page, the one that is cheapest to restore gives its pages
// back, keeps its state in the prefix cache if there is one, and goes on later where it was.
//
// Threads: one thread owns the engine; the callback runs on it, inside step(). With
// LoopMode::overlapped another one computes: between the calls of step() it uses the model and the
// thread pools, so nobody else may until drain() (engine_core.h says who owns what).

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/metrics.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "cache/page_pool.h"
#include "cache/prefix_cache.h"
#include "engine/request.h"
#include "models/model.h"
#include "sampling/sampler.h"
#include "speculation/verifier.h"

namespace deepinfer::engine {

class StepTrace;

// Everything is bounded; computed from the options at create() and printed at start.
struct Limits {
  size_t sequences = 0;    // running at once; the rest waits
  size_t waiting = 0;      // accepted and not yet running
  size_t rows = 0;         // of one step
  size_t logits_rows = 0;  // of one step, so that the logits stay below 64 MiB
  size_t context = 0;      // prompt and output of one sequence; all pages hold it
  size_t pages = 0;        // of 128 tokens, all sequences together
  size_t cache_bytes = 0;
  uint64_t snapshot_bytes = 0;  // of frontiers kept for resuming; 0: none
  std::string text() const;     // one line
};

// How the loop runs. Both give the same events in the same order within a request.
enum class LoopMode {
  plain,       // plan, compute, sample, report: one after the other
  overlapped,  // while step N computes, step N + 1 is planned and the events of N - 1 are delivered
};

class Engine {
 public:
  struct Options {
    size_t max_sequences = 64;
    size_t max_waiting = 65536;
    size_t max_rows = 512;  // no more than the model was opened for; bounds max_sequences too
    size_t context = 0;     // 0: the model's limit
    // Of pages; 0: max_sequences full contexts, 2 GiB and a quarter of the memory at most.
    size_t cache_bytes = 0;
    // Frontiers kept for resuming, beside the pages; 0: none (each resume needs entries only, or
    // starts cold).
    uint64_t snapshot_bytes = 0;
    bool prefix_cache = false;         // what ends stays in the pages until they are needed
    Hash128 identity = {};             // of weights and cache formats: part of every prefix key
    size_t snapshot_every_pages = 32;  // grid of resume points in long prompts; 0: no grid
    LoopMode mode = LoopMode::plain;
    // overlapped: false computes inside of step(), in the same order: runs repeat exactly.
    bool compute_thread = true;
    speculation::Acceptance acceptance = speculation::Acceptance::sample_match;
    double target_step_ms = 0;   // bounds prompt rows beside decoding ones; 0: none
    uint32_t prefill_every = 4;  // steps in which a prompt gets its floor of rows at the latest
    kernels::Isa isa = kernels::Isa::ref;  // of the sampler
    ThreadPool* pool = nullptr;  // samples the rows of a step in parallel; null: one by one
    Metrics* metrics = nullptr;  // null: none are kept; must outlive the engine
  };
  // The model and the clock must outlive the engine. Fails (invalid) on options that contradict
  // each other, and (exhausted) when the pages cannot be reserved.
  static Result<std::unique_ptr<Engine>> create(models::Model& model, const Options& options,
                                                const Clock& clock);
  ~Engine();

  const Limits& limits() const;

  // Refuses (invalid): an id in use, an empty prompt, ids outside the vocabulary, a prompt longer
  // than the context, parameters out of range, options that exclude each other, images that
  // overlap, leave the prompt or need more rows than a step has; (exhausted): too many waiting.
  // Names the value and the limit. A prompt that fills the context ends with FinishReason::length
  // and no token.
  Result<void> add(Request request);
  // Those checks of add() that do not depend on other requests. Any thread: it reads only what
  // create() set.
  Result<void> validate(const Request& request) const;
  // Takes effect before the next step is launched; unknown ids are not_found.
  Result<void> cancel(uint64_t request);

  bool busy() const;
  // One forward pass; events go to `sink`. When the model fails, its rows are computed again
  // sequence by sequence, and those that fail alone too end with FinishReason::error; the error is
  // returned when nothing is left. A sink that throws is a bug of the caller: the process ends.
  Result<void> step(const Sink& sink);
  // The step in flight is finished and its events delivered; for callers that stop stepping.
  Result<void> drain(const Sink& sink);

  // Records the steps from the next one on, and where the model's time goes in them; null: no
  // longer. Between two steps.
  void trace(StepTrace* trace);

  struct StepCounters {
    uint64_t steps = 0, rows = 0, prefill_rows = 0, decode_rows = 0, verify_rows = 0;
    uint64_t accepted_rows = 0;   // drafted rows that stood
    uint64_t discarded_rows = 0;  // computed for sequences that had ended
    uint64_t preemptions = 0;     // requests that gave their pages back
    double compute_seconds = 0;   // in forward()
    double sample_seconds = 0;
    double plan_seconds = 0;  // planning and delivering, whether overlapped or not
    // Computing waited: for a plan, and from the end of a step's sampling to the next forward().
    double bubble_seconds = 0;
  };
  const StepCounters& counters() const;
  const cache::PrefixCache* prefix_cache() const;  // null without
  // Pages held by sequences; those that only the prefix cache holds do not count.
  size_t pages_in_use() const;
  // Of pages, sequences and queues; a violation ends the process. For tests.
  void check_invariants() const;

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer::engine
