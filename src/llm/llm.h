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
// The engine is made when the first prompts are known, with as many pages as they can need (within
// the limits), and made anew when later ones need more: start-up reserves nothing for contexts that
// nobody asks for.
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
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/engine.h"
#include "image/prepare.h"
#include "llm/package_weights.h"
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
  size_t context = 0;            // 0: the model's limit
  size_t cache_bytes = 0;        // limit of the pages' bytes; 0: a quarter of the machine's memory
  FetchObserver fetch;           // of an alias
  image::PrepareOptions images;  // how pictures of prompts are fitted
  models::Progress load_progress;  // bytes of weights
};

// Text is continued as it is (spellings of control tokens count, BOS as the model wants it);
// messages go through the model's layout; ids are taken as they are.
using Input = std::variant<std::string, std::vector<int32_t>, recipe::Conversation>;

struct Prompt {
  Input input;
  sampling::Parameters sampling;
  size_t max_tokens = 256;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool want_text = true;  // false: text stays empty, no tokenizer needed
  // In the order of the placeholders (image_token_id) among the input's ids, as many of them.
  std::vector<ImageFile> images;
};

struct Answer {
  std::string text;
  std::vector<int32_t> ids;     // generated, the stop id included
  std::vector<float> logprobs;  // [ids]
  engine::FinishReason finish = engine::FinishReason::none;
  std::optional<Error> error;  // when finish == error
  engine::RequestStats stats;
};

struct Delta {
  size_t index = 0;                // of the prompt
  std::string_view text;           // new text, may be empty
  const Answer* answer = nullptr;  // set once, when the answer is complete
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
  ThreadPool& pool() { return *pool_; }

 private:
  struct Stream;
  struct Run;
  Llm(std::string path, weights::Checkpoint checkpoint, LlmOptions options);
  // An engine that can hold these needs (tokens of each sequence at its end) at once, or as many of
  // them as the limits allow.
  Result<void> ensure_engine(std::vector<size_t> needs);
  // Ids and pictures of a prompt, within the context.
  Result<PromptWithImages> prepare(const Prompt& prompt);
  void start(size_t index, const Prompt& prompt, PromptWithImages input, Run& run);
  void handle(const engine::Event& event, Run& run);
  void finish(Stream& stream, const engine::Event& event, Run& run);
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
  size_t engine_sequences_ = 0;
  size_t engine_waiting_ = 0;
  size_t engine_cache_bytes_ = 0;
  uint64_t next_request_ = 1;
  Speed speed_;
};

// The tokenizer of a checkpoint (GGUF metadata or tokenizer.json); not_found when it carries none.
Result<text::Tokenizer> open_tokenizer(const weights::Checkpoint& checkpoint);

// The layout that a checkpoint's chat template and tokenizer call for. tokenizer may be null.
Result<recipe::Layout> open_layout(const weights::Checkpoint& checkpoint,
                                   const text::Tokenizer* tokenizer);

}  // namespace deepinfer::llm
