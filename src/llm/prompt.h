#pragma once

// Prompt: what a user of the library asks for, and Answer: what comes back. Text and ids.
//
// Threads: plain values.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "engine/request.h"
#include "recipe/conversation.h"
#include "sampling/sampler.h"

namespace deepinfer::llm {

struct ImageFile {
  std::string bytes;
  std::string place;  // "image.png", for errors
};

// Text is continued as it is (spellings of control tokens count, BOS as the model wants it);
// messages go through the model's layout; ids are taken as they are.
using Input = std::variant<std::string, std::vector<int32_t>, recipe::Conversation>;

struct Prompt {
  Input input;
  // seed, temperature and filters, penalties, logit_bias, banned ids, kind and number of
  // log-probabilities.
  sampling::Parameters sampling;
  size_t max_tokens = 256;
  size_t min_tokens = 0;          // before that many, nothing but the limit ends the answer
  std::vector<std::string> stop;  // ends before this text; needs a tokenizer
  std::vector<int32_t> stop_ids;  // end with this id, beside the model's own
  bool ignore_eos = false;
  bool want_text = true;  // false: text stays empty, no tokenizer needed
  bool want_prompt_logprobs = false;
  std::vector<int32_t> forced_ids;  // output i is forced_ids[i] while there is one, -1: free
  // In the order of the placeholders (image_token_id) among the input's ids, as many of them.
  std::vector<ImageFile> images;

  // Answers wanted. Choice i draws with seed + i; the prompt is computed once. A choice that met a
  // stop string is computed on, unseen, until the others are through.
  uint32_t choices = 1;
  // Answers computed, of which the `choices` with the largest mean log-probability are returned,
  // best first; 0: as many as wanted, in the order of their seeds.
  uint32_t best_of = 0;

  int priority = 0;       // -8 .. 8, higher first
  uint64_t user = 0;      // whom fairness counts
  double timeout_ms = 0;  // from the start on, then it ends with an error; 0: never
  uint64_t salt = 0;      // prompts of other salts share nothing that was computed
  engine::Resume resume = engine::Resume::exact;
  size_t replay_tokens = 0;  // with Resume::replay; 0: what the model recommends
  engine::Drafting drafting = engine::Drafting::none;
  size_t most_drafts = 5;  // in one step
  bool keep = true;        // what it computes may serve later prompts
  // Positions of the input's ids worth a resume point, beside those that messages bring along.
  std::vector<size_t> resume_points;
};

// One answer to a prompt.
struct Answer {
  std::string text;
  std::vector<int32_t> ids;     // generated, the stop id included
  std::vector<float> logprobs;  // [ids]
  // [ids], with sampling.top_logprobs > 0: the alternatives, most likely first.
  std::vector<std::vector<std::pair<int32_t, float>>> top_logprobs;
  // With want_prompt_logprobs: [prompt - 1], entry i is about prompt id i + 1.
  std::vector<sampling::Sampled> prompt_logprobs;
  engine::FinishReason finish = engine::FinishReason::none;
  std::optional<Error> error;  // when finish == error
  engine::RequestStats stats;  // cached_tokens, resume and not_reused say what was known before
  std::vector<Answer> others;  // with choices > 1: the further ones; theirs is empty

  // Of the generated ids; what best_of ranks by. 0 without ids.
  double mean_logprob() const;
};

struct Delta {
  size_t index = 0;                // of the prompt
  uint32_t choice = 0;             // 0: Answer itself, i: Answer::others[i - 1]
  std::string_view text = {};      // new text, may be empty
  const Answer* answer = nullptr;  // set once, when the answer is complete with all its choices
};

// Fails (invalid) on options that exclude each other, naming both; the engine checks the rest.
Result<void> check_prompt(const Prompt& prompt);

// An engine's error about a request, which it calls by a number that nobody outside knows.
Error prompt_error(Error error);

}  // namespace deepinfer::llm
