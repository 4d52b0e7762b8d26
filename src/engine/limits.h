#pragma once

// Turns Engine::Options into Limits. Errors name the option and both values.

#include "base/result.h"
#include "engine/engine.h"

namespace deepinfer::engine {

Result<Limits> compute_limits(const models::Model& model, const Engine::Options& options);

}  // namespace deepinfer::engine
