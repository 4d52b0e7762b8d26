#pragma once

// Groups of options that several commands share, and what they mean for the library.
//
// Threads: plain values.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/options.h"
#include "llm/llm.h"

namespace deepinfer::apps {

// --json, --log-level.
struct OutputSettings {
  bool json = false;
  std::string log_level = "warning";

  void declare(OptionTable& options);
};

// --threads, --isa, --numerics, --kv, --max-rows, --stream-memory, --no-overlap, --target-step-ms,
// --image-profile, --image-decode, --explain.
struct EngineSettings {
  size_t threads = 0;  // 0: all usable cores
  std::string isa = "auto";
  std::string numerics = "fast";
  std::string kv = "official";
  size_t max_rows = 512;
  size_t stream_memory = 0;  // 0: experts are resident when they fit
  bool no_overlap = false;
  double target_step_ms = 0;
  std::string image_profile = "native";
  std::string image_decode = "blend";
  bool explain = false;

  void declare(OptionTable& options);
  // Fails when the machine lacks the instruction set.
  Result<llm::LlmOptions> llm_options() const;
};

// --max-tokens, --min-tokens, --seed, --temperature, --top-p, --top-k, --min-p, --logit-bias, --n,
// --best-of, --stop, --ignore-eos, --resume, --replay-tokens, --draft; the same names with
// underscores stand in the lines of a prompt file.
struct SamplingSettings {
  size_t max_tokens = 256;
  size_t seed = 0;
  double temperature = 0;
  double top_p = 1;
  size_t top_k = 0;
  double min_p = 0;
  size_t min_tokens = 0;
  std::vector<std::string> logit_bias;  // "ID:BIAS"
  size_t n = 1;
  size_t best_of = 0;  // 0: n
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::string resume;        // "exact", "replay"; empty: not said, which is exact
  size_t replay_tokens = 0;  // 0: what the model recommends
  std::string draft = "none";
  size_t most_drafts = 5;  // no option: DEEPINFER_USE_NEXTN_DECODE

  void declare(OptionTable& options);
  // Takes the members of `line`; those in `known` are the caller's. Any other is an error.
  Result<void> take_members(const JsonValue& line, const std::vector<std::string_view>& known);
  // DeepInfer's own variables, where no option says otherwise: USE_NEXTN_DECODE,
  // YOCO_PREFILL_TRUNCATION_MODE and YOCO_PREFILL_KEEP_TOKENS, each after "DEEPINFER_" (spec
  // deepinfer_engine.md 3 and 5). Fails on values that they cannot have, or that mean nothing here.
  Result<void> take_deepinfer_variables();
  // The input is left empty. Fails on a bias that is none.
  Result<llm::Prompt> prompt() const;
};

// The first argument, else the default model.
std::string model_of(const std::vector<std::string>& arguments);

}  // namespace deepinfer::apps
