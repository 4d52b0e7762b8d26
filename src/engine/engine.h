#pragma once

// Engine: one replica. Prompts of token ids in, token ids out; no text. All requests of a batch run
// together: every step carries one row of each decoding sequence and, with what is left of
// max_rows, chunks of prompts, in order of arrival. A request that cannot be served ends in an
// error of its own; the others never notice.
//
//   auto engine = TRY(Engine::create(model, options, system_clock()));
//   TRY(engine->add({.id = 7, .prompt = ids, .max_tokens = 64}));
//   while (engine->busy()) TRY(engine->step([&](Event event) { ... }));
//
// Pages: a request starts when the pages of its prompt and one more are free. When a running one
// finds no page, the newest running request gives its pages back, waits at its old place in the
// order of arrival and is computed again later; its tokens do not change.
//
// Threads: one thread owns the engine; the callback runs on it, inside step().

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cache/page_pool.h"
#include "models/model.h"
#include "sampling/sampler.h"

namespace deepinfer::engine {

enum class FinishReason { none, stop, length, cancelled, error };
std::string_view finish_reason_name(FinishReason reason);

// A picture of a prompt: the rows that its positions take instead of embeddings of their ids.
struct PromptImage {
  size_t start = 0;                           // first position
  std::vector<const float*> embeddings = {};  // one [hidden] a position
  std::shared_ptr<const void> owner = {};     // keeps what the pointers show
};

struct Request {
  uint64_t id = 0;                   // chosen by the caller, unique among the live ones
  std::vector<int32_t> prompt = {};  // 1 .. context ids
  sampling::Parameters sampling = {};
  size_t max_tokens = 256;             // 0: the prompt is computed (and scored), nothing generated
  std::vector<int32_t> stop_ids = {};  // the stop id itself is reported, with FinishReason::stop
  bool ignore_eos = false;             // else the model's eos ids stop too
  // Log-probability of each prompt id given those before, and sampling.top_logprobs alternatives.
  bool want_prompt_logprobs = false;
  // In the order of their positions, apart. A chunk never ends inside of one: its positions run in
  // one step. The ids there are not read, and are valid ids. Not with want_prompt_logprobs.
  std::vector<PromptImage> images = {};
};

struct RequestStats {
  size_t prompt_tokens = 0;
  size_t cached_tokens = 0;
  size_t completion_tokens = 0;
  double ttft_ms = 0;  // from add() to the first token
  double tpot_ms = 0;  // mean time between later tokens, 0 when fewer than two
};

struct Event {
  uint64_t request = 0;
  // One new token; absent in an event that only ends the request.
  bool has_token = false;
  sampling::Sampled token = {};
  // Prompt ids that were scored in this step: entry i is about prompt id `prompt_first + i`. The
  // first id of a prompt has no score, so prompt_first is 1 or more.
  size_t prompt_first = 0;
  std::vector<sampling::Sampled> prompt_scores = {};
  FinishReason finish = FinishReason::none;
  std::string error = {};   // when finish == error
  RequestStats stats = {};  // when finished
};

// Everything is bounded; computed from the options at create() and printed at start.
struct Limits {
  size_t sequences = 0;    // running at once; the rest waits
  size_t waiting = 0;      // accepted and not yet running
  size_t rows = 0;         // of one step
  size_t logits_rows = 0;  // of one step, so that the logits stay below 64 MiB
  size_t context = 0;      // prompt and output of one sequence; all pages hold it
  size_t pages = 0;        // of 128 tokens, all sequences together
  size_t cache_bytes = 0;
  std::string text() const;  // one line
};

class Engine {
 public:
  struct Options {
    size_t max_sequences = 64;
    size_t max_waiting = 65536;
    size_t max_rows = 512;  // no more than the model was opened for; bounds max_sequences too
    size_t context = 0;     // 0: the model's limit
    size_t cache_bytes =
        0;  // 0: max_sequences full contexts, 2 GiB and a quarter of the memory at most
    kernels::Isa isa = kernels::Isa::ref;  // of the sampler
  };
  // The model and the clock must outlive the engine. Fails (invalid) on options that contradict
  // each other, and (exhausted) when the pages cannot be reserved.
  static Result<std::unique_ptr<Engine>> create(models::Model& model, const Options& options,
                                                const Clock& clock);
  ~Engine();

  const Limits& limits() const;

  // Refuses (invalid): an id in use, an empty prompt, ids outside the vocabulary, a prompt longer
  // than the context, parameters out of range, images that overlap, leave the prompt or need more
  // rows than a step has; (exhausted): too many waiting. Names the value and
  // the limit. A prompt that fills the context ends with FinishReason::length and no token.
  Result<void> add(Request request);
  // Takes effect before the next step; unknown ids are not_found.
  Result<void> cancel(uint64_t request);

  bool busy() const;
  // One forward pass; events go to `sink`. When the model fails, its rows are computed again
  // sequence by sequence, and those that fail alone too end with FinishReason::error; the error is
  // returned when nothing is left.
  Result<void> step(const std::function<void(Event)>& sink);

  struct StepCounters {
    uint64_t steps = 0, rows = 0, prefill_rows = 0, decode_rows = 0;
    uint64_t preemptions = 0;                      // requests that gave their pages back
    double compute_seconds = 0, plan_seconds = 0;  // in forward(), and all else
  };
  const StepCounters& counters() const;
  size_t pages_in_use() const;
  // Of pages, sequences and queues; a violation ends the process. For tests.
  void check_invariants() const;

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer::engine
