#pragma once

// What add() refuses: requests that can never run, each by the name of its field and both values.
//
// Threads: pure functions.

#include "base/result.h"
#include "engine/engine.h"

namespace deepinfer::engine {

Result<void> check_request(const Request& request, const models::Model& model,
                           const Limits& limits);

}  // namespace deepinfer::engine
