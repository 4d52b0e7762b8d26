#pragma once

// What a C program asks for, as the library's own types.
//
// Threads: pure functions.

#include <deepinfer/deepinfer.h>
#include "base/result.h"
#include "llm/llm.h"

namespace deepinfer::llm {

// `request` may be shorter than ours: what it lacks is as deepinfer_request_init() sets it.
Result<Prompt> prompt_of(const deepinfer_request& request);
Result<LlmOptions> options_of(const deepinfer_model_options& options);

deepinfer_status status_of(ErrorKind kind);

}  // namespace deepinfer::llm
