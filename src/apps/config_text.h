#pragma once

// A model's configuration for people and for scripts: `inspect` and `plan`.
//
// Threads: any; pure functions.

#include <string>

#include "base/json_writer.h"
#include "models/plan/memory_plan.h"

namespace deepinfer::apps {

// The members of the object that follows "config".
void write_config(JsonWriter& json, const models::AnyConfig& config);

// Indented lines, each with its line end.
std::string config_text(const models::AnyConfig& config);

// The array that follows "parts".
void write_parts(JsonWriter& json, const std::vector<models::PartBytes>& parts);
std::string parts_text(const std::vector<models::PartBytes>& parts);

}  // namespace deepinfer::apps
