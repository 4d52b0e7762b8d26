#pragma once

// Llm: a model path opened. Text, ids or messages in; text and ids out.
//
//   auto llm = TRY(Llm::open("smollm2", {}));
//   auto answers = TRY(llm->generate({{.input = "The capital of France is"}}, {}));
//
// All prompts of one generate() run through the engine together; a prompt that is refused or fails
// ends with FinishReason::error in its own answer and leaves the others alone. Text arrives in
// `on_delta` as soon as its characters are complete and cannot become a stop string.
//
// A checkpoint without tokenizer opens: ids in, ids out work, everything with text is an error.
//
// One engine serves all calls, with a prefix cache: what an earlier prompt computed is not computed
// again. It is made when the first prompts are known and holds what its size says (engine_size.h);
// memory is touched as it is used. A prompt longer than it can hold makes it anew, and what it
// knew is forgotten.
//
// Ownership: an Llm owns checkpoint, weights and workers. Threads: one thread at a time, except
// that `cancel` of a call may be set from anywhere.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/metrics.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/engine.h"
#include "image/prepare.h"
#include "llm/package_weights.h"
#include "llm/prompt.h"
#include "llm/prompt_images.h"
#include "models/model.h"
#include "recipe/layout.h"
#include "sampling/sampler.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"

namespace deepinfer::llm {

struct LlmOptions {
  models::ModelOptions model;  // instruction set, numerics, cache rows, rows of a step
  ThreadPool::Options pool;
  size_t max_sequences = 64;
  size_t context = 0;           // 0: the model's limit
  uint64_t cache_bytes = 0;     // of pages; 0: as engine_size.h says
  uint64_t snapshot_bytes = 0;  // of frontiers; 0: as engine_size.h says
  bool prefix_cache = true;
  engine::LoopMode loop = engine::LoopMode::overlapped;
  double target_step_ms = 0;       // bounds prompt rows beside decoding ones; 0: none
  Metrics* metrics = nullptr;      // of the engine; must outlive the Llm
  FetchObserver fetch;             // of an alias
  image::PrepareOptions images;    // how pictures of prompts are fitted
  models::Progress load_progress;  // bytes of weights
};

// Speed of a generate(), cut where the last prompt had its first token: before that prompts are
// read (and some answers go on already), after it every step is decoding.
struct Speed {
  size_t prompt_tokens = 0;
  double prefill_seconds = 0;
  size_t decode_tokens = 0;
  size_t decode_steps = 0;  // each reads all weights once
  double decode_seconds = 0;
};

// Log-probabilities of one sequence of ids.
struct Scores {
  std::vector<sampling::Sampled> next;  // [ids - 1], entry i is about ids[i + 1]
  std::optional<Error> error;
};

class Llm {
 public:
  static Result<std::unique_ptr<Llm>> open(const std::string& model, const LlmOptions& options);
  ~Llm();
  Llm(const Llm&) = delete;
  Llm& operator=(const Llm&) = delete;

  // Errors: what stops all prompts (the engine itself). Answers are in the order of the prompts.
  Result<std::vector<Answer>> generate(std::span<const Prompt> prompts,
                                       const std::function<void(const Delta&)>& on_delta,
                                       const std::atomic<bool>* cancel = nullptr);

  // One forward pass over each sequence; `top` alternatives at every position (0..20).
  // progress counts scored ids of all sequences.
  Result<std::vector<Scores>> score(std::span<const std::vector<int32_t>> sequences, int32_t top,
                                    const std::function<void(size_t done)>& progress = {},
                                    const std::atomic<bool>* cancel = nullptr);

  // Ids of an input as generate() would run it.
  Result<std::vector<int32_t>> encode(const Input& input) const;
  // Errors: unsupported when the checkpoint has no tokenizer or no layout of this program.
  Result<text::Tokenizer> tokenizer() const;
  Result<recipe::Layout> layout() const;

  const Speed& speed() const { return speed_; }  // of the last generate()
  size_t context() const;                        // tokens of one prompt and its answer
  const std::string& path() const { return path_; }
  const weights::Checkpoint& checkpoint() const { return checkpoint_; }
  models::Model& model() { return *model_; }
  // nullptr before the first generate() or score().
  const engine::Engine* engine() const { return engine_.get(); }
  // An engine of its own for this model, for sequences of at least `longest` tokens: of one thread
  // that generates nothing here as long as it lives.
  Result<std::unique_ptr<engine::Engine>> make_engine(size_t longest);
  ThreadPool& pool() { return *pool_; }

 private:
  struct Run;
  friend class LlmService;
  Llm(std::string path, weights::Checkpoint checkpoint, LlmOptions options);
  // An engine that holds sequences of that many tokens, as far as the context goes.
  Result<void> ensure_engine(size_t longest);
  // What the engine is asked for a prompt, within the context; the id is left open. Pictures are
  // encoded with `pool`.
  Result<engine::Request> make_request(const Prompt& prompt, ThreadPool& pool);
  Result<PromptWithImages> place_images(const Prompt& prompt, std::vector<int32_t> ids,
                                        std::vector<size_t>& points, ThreadPool& pool);
  const text::Tokenizer* tokenizer_or_null() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  Result<void> feed(Run& run);
  Result<void> step_until_done(Run& run, const std::atomic<bool>* cancel);

  std::string path_;
  LlmOptions options_;
  std::unique_ptr<ThreadPool> pool_;
  weights::Checkpoint checkpoint_;
  std::optional<text::Tokenizer> tokenizer_;
  std::optional<Error> tokenizer_error_;
  std::unique_ptr<models::Model> model_;
  std::optional<ImageRules> image_rules_;
  std::unique_ptr<PromptImages> prompt_images_;  // from the first prompt with images on
  std::unique_ptr<engine::Engine> engine_;
  uint64_t next_request_ = 1;
  Speed speed_;
};

// The tokenizer of a checkpoint (GGUF metadata or tokenizer.json); not_found when it carries none.
Result<text::Tokenizer> open_tokenizer(const weights::Checkpoint& checkpoint);

// The layout that a checkpoint's chat template and tokenizer call for. tokenizer may be null.
Result<recipe::Layout> open_layout(const weights::Checkpoint& checkpoint,
                                   const text::Tokenizer* tokenizer);

}  // namespace deepinfer::llm
