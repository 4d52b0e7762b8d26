#pragma once

// Opens the model of a command: progress of fetching and loading on stderr, --explain, Ctrl-C.
//
// Threads: the main thread.

#include <memory>
#include <string>

#include "apps/interrupt.h"
#include "apps/settings.h"
#include "llm/llm.h"

namespace deepinfer::apps {

// `quiet` shows no progress whatever stderr is.
Result<std::unique_ptr<llm::Llm>> open_model(const std::string& model,
                                             const EngineSettings& settings, bool quiet);

// The path behind MODEL, fetched when it is an alias.
Result<std::string> resolve_model_path(const std::string& model, bool quiet);

// On stderr, one line for each distinct choice.
void print_choices(const std::vector<kernels::Choice>& choices);

}  // namespace deepinfer::apps
