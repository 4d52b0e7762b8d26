#pragma once

// Request: what a caller asks of the engine, and Event: what it hears back. Ids only.
//
// Threads: plain values.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "sampling/sampler.h"

namespace deepinfer::engine {

enum class FinishReason { none, stop, length, cancelled, error };
std::string_view finish_reason_name(FinishReason reason);

// A picture of a prompt: the rows that its positions take instead of embeddings of their ids.
struct PromptImage {
  size_t start = 0;                           // first position
  std::vector<const float*> embeddings = {};  // one [hidden] a position
  std::shared_ptr<const void> owner = {};     // keeps what the pointers show
  Hash128 content = {};  // of the picture as the model sees it; equal content, equal rows
};

// How a prompt whose head is known takes up the work.
enum class Resume {
  none,   // everything is computed
  exact,  // from a snapshot, or by computing what is missing: the same bits as none
  // From the entries alone and the last `replay_tokens` positions, whatever the prompt's length:
  // approximate (spec v41.md 5.3). Only models with Model::bounded_replay().
  replay,
};

// How drafts are made for a request.
enum class Drafting { none, ngram };

struct Request {
  uint64_t id = 0;                   // chosen by the caller, unique among the live ones
  std::vector<int32_t> prompt = {};  // 1 .. context ids
  sampling::Parameters sampling = {};
  size_t max_tokens = 256;             // 0: the prompt is computed (and scored), nothing generated
  size_t min_tokens = 0;               // before that many, no stop id and no eos can be sampled
  std::vector<int32_t> stop_ids = {};  // the stop id itself is reported, with FinishReason::stop
  // Sequences of ids that end the request when the output ends in one; reported like stop_ids.
  std::vector<std::vector<int32_t>> stop_sequences = {};
  bool ignore_eos = false;  // else the model's eos ids stop too
  // Log-probability of each prompt id given those before, and sampling.top_logprobs alternatives.
  // Exact after a hit too: positions whose logits are not known are computed.
  bool want_prompt_logprobs = false;
  // Teacher forcing: output i is forced_ids[i] while there is one, -1 leaves it free.
  std::vector<int32_t> forced_ids = {};
  // In the order of their positions, apart. A chunk never ends inside of one: its positions run in
  // one step. The ids there are not read, and are valid ids. Not with want_prompt_logprobs.
  std::vector<PromptImage> images = {};

  // Continuations of the prompt, which is computed once; choice i is seeded with seed + i, so that
  // choice 0 is what choices == 1 gives.
  uint32_t choices = 1;

  int priority = 0;           // -8 .. 8, higher first
  uint64_t user = 0;          // whom fairness counts
  double weight = 1;          // > 0, of the user's share
  double ttft_target_ms = 0;  // deadline of the first token for the order of work; 0: none
  double timeout_ms = 0;      // from add() on: then it ends with an error; 0: never
  uint64_t salt = 0;          // of the tenant: requests of other salts share no cache
  Resume resume = Resume::exact;
  size_t replay_tokens = 0;  // with Resume::replay; 0: the model's recommended count
  Drafting drafting = Drafting::none;
  size_t most_drafts = 5;  // a step; as far as the model can roll back
  // Prompt positions worth a resume point: where the shared system part ends, where turns end.
  std::vector<size_t> resume_points = {};
  bool keep = true;  // what it computes stays in the prefix cache after it ends
};

struct RequestStats {
  size_t prompt_tokens = 0;
  size_t cached_tokens = 0;  // of the prompt, that were not computed
  std::string resume;        // "cold", "snapshot", "pages", "replay", "fork"
  std::string not_reused;    // why not more; empty: everything that could be was
  size_t completion_tokens = 0;
  size_t drafted = 0, accepted = 0;  // tokens
  size_t preemptions = 0;
  double queue_ms = 0;     // from add() to the first row
  double ttft_ms = 0;      // from add() to the first token
  double tpot_ms = 0;      // mean time between later tokens, 0 when fewer than two
  double itl_ms_max = 0;   // longest time between tokens
  double logprob_sum = 0;  // of the output, for ranking choices; 0 when not wanted
};

struct Event {
  uint64_t request = 0;
  uint32_t choice = 0;
  // One new token; absent in an event that only ends the request.
  bool has_token = false;
  sampling::Sampled token = {};
  bool drafted = false;  // the token was proposed by the drafter and stood
  // Prompt ids that were scored in this step: entry i is about prompt id `prompt_first + i`. The
  // first id of a prompt has no score, so prompt_first is 1 or more. Choice 0 only.
  size_t prompt_first = 0;
  std::vector<sampling::Sampled> prompt_scores = {};
  FinishReason finish = FinishReason::none;  // of this choice
  std::string error = {};                    // when finish == error
  RequestStats stats = {};                   // when finished
};

using Sink = std::function<void(Event)>;

}  // namespace deepinfer::engine
