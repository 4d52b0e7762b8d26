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

// --threads, --isa, --numerics, --kv, --max-rows, --stream-memory, --image-profile, --image-decode,
// --explain.
struct EngineSettings {
  size_t threads = 0;  // 0: all usable cores
  std::string isa = "auto";
  std::string numerics = "fast";
  std::string kv = "official";
  size_t max_rows = 512;
  size_t stream_memory = 0;  // 0: experts are resident when they fit
  std::string image_profile = "native";
  std::string image_decode = "blend";
  bool explain = false;

  void declare(OptionTable& options);
  // Fails when the machine lacks the instruction set.
  Result<llm::LlmOptions> llm_options() const;
};

// --max-tokens, --seed, --temperature, --top-p, --top-k, --min-p, --stop, --ignore-eos; the same
// names with underscores stand in the lines of a prompt file.
struct SamplingSettings {
  size_t max_tokens = 256;
  size_t seed = 0;
  double temperature = 0;
  double top_p = 1;
  size_t top_k = 0;
  double min_p = 0;
  std::vector<std::string> stop;
  bool ignore_eos = false;

  void declare(OptionTable& options);
  // Takes the members of `line`; those in `known` are the caller's. Any other is an error.
  Result<void> take_members(const JsonValue& line, const std::vector<std::string_view>& known);
  llm::Prompt prompt() const;  // the input is left empty
};

// The first argument, else the default model.
std::string model_of(const std::vector<std::string>& arguments);

}  // namespace deepinfer::apps
