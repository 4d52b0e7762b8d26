#pragma once

// What a person may write for MODEL: a directory, a .gguf file, or an alias whose weights are
// fetched on first use. A path that exists wins over an alias of the same name only when it is
// written as a path (with a slash or a suffix).
//
// Threads: any.

#include <string>
#include <vector>

#include "base/result.h"
#include "llm/package_weights.h"

namespace deepinfer::llm {

inline constexpr std::string_view kDefaultModel = "smollm2";

// $DEEPINFER_HF_MODEL_DIR when it is set and not empty, else "smollm2".
std::string default_model();

std::vector<std::string_view> model_aliases();

// The path to open. Errors: not_found naming the path and the aliases; those of the fetch.
Result<std::string> resolve_model(const std::string& model, const FetchObserver& observer);

}  // namespace deepinfer::llm
