#pragma once

// MemoryPlan: what a model will take and how fast it will run, from its configuration alone: bytes
// by part, what stays in memory and what is fetched, and which bound sets the speed.
//
//   resident: everything but routed experts and Engram tables; those too when all of it fits
//   a decoded token reads the resident matrices, the experts it routes to, and its cache; the
//   slower of memory, disk and arithmetic sets the step
//
// Estimates, with what they assume: every expert is equally likely (skew makes the real hit rate
// better), products reach kMemoryShare of the measured memory bandwidth when decoding and
// kProductShare of the measured peak when reading a prompt.
//
// Threads: any; pure functions.

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "cache/layout.h"
#include "models/model.h"
#include "weights/deepseek/deepseek_config.h"
#include "weights/model_config.h"
#include "weights/tensor_spec.h"

namespace deepinfer::models {

inline constexpr double kMemoryShare = 0.85;
inline constexpr double kProductShare = 0.6;

using AnyConfig = std::variant<weights::LlamaConfig, weights::DeepseekV3Config,
                               weights::DeepseekV4Config, weights::DeepseekV41Config>;

// A model as `plan` sees it: its configuration and its tensors.
struct PlannedModel {
  AnyConfig config;
  std::vector<weights::TensorSpec> tensors;
};
// From a config.json alone: the tensors of the official files.
Result<PlannedModel> planned_from_config(std::string_view json, const std::string& source);
// From a checkpoint: the tensors it has.
Result<PlannedModel> planned_from_checkpoint(const weights::Checkpoint& checkpoint);
const weights::ModelConfig& base_config(const AnyConfig& config);

// Streams of one sequence's cache, as the family's model declares them. Fails as the model does.
Result<cache::CacheLayout> planned_cache(const AnyConfig& config, KvMode kv);

// Per second, measured or stated. Zero: the plan says what lies where, and leaves times at 0.
struct PlanRates {
  double memory_read = 0;     // bytes, all threads
  double disk_read = 0;       // bytes
  double float_products = 0;  // operations on FP8, BF16 and F32 weights, all threads
  double int8_products = 0;   // operations on FP4 and block formats
};

inline constexpr uint64_t kDefaultContext = 8192;
// Tokens of a sequence when the caller states `context` (0: nothing), the model `most`.
inline uint64_t planned_context(uint64_t context, uint64_t most) {
  return std::min(context != 0 ? context : kDefaultContext, most);
}
// Of the memory that this process may use; the rest is for the system and the page cache.
inline uint64_t planned_memory(uint64_t usable) { return usable / 10 * 9; }

struct PlanRequest {
  uint64_t context = kDefaultContext;  // tokens of each sequence
  uint64_t streams = 1;                // sequences at once
  uint64_t memory = 0;                 // bytes that may be used
  KvMode kv = KvMode::official;
  uint64_t max_rows = 512;
  PlanRates rates;
};

struct PartBytes {
  weights::Part part = weights::Part::attention;
  uint64_t tensors = 0;
  uint64_t bytes = 0;
};

// The parts that exist, in the order of Part.
std::vector<PartBytes> add_up_parts(const std::vector<weights::TensorSpec>& tensors);

enum class Bound : uint8_t { memory, disk, arithmetic };
std::string_view bound_name(Bound bound);

// Seconds of a step by each bound; the largest sets it.
struct StepTime {
  double memory_seconds = 0;
  double disk_seconds = 0;
  double arithmetic_seconds = 0;

  double seconds() const;
  Bound bound() const;
};

struct MemoryPlan {
  std::vector<PartBytes> parts;  // those that exist, in the order of Part
  uint64_t tensors = 0;
  uint64_t weight_bytes = 0;

  double cache_bytes_per_token = 0;
  uint64_t cache_bytes_per_sequence = 0;  // the frontier, whatever the length
  uint64_t cache_bytes = 0;               // of all streams at full context
  uint64_t workspace_bytes = 0;           // about

  uint64_t expert_bytes = 0;  // one routed expert of the backbone; 0: no experts
  uint64_t expert_count = 0;  // of all layers
  uint64_t experts_per_token = 0;
  uint64_t streamable_bytes = 0;  // experts and Engram tables
  uint64_t needed_bytes = 0;      // with everything in memory
  uint64_t floor_bytes = 0;       // the least memory that runs it
  bool resident = false;          // everything fits
  bool runs = false;              // memory is at least the floor
  bool tables_on_disk = false;    // Engram rows are fetched
  uint64_t stream_bytes = 0;      // budget of streamed experts; 0 when none are
  uint64_t expert_slots = 0;      // experts that memory holds at once
  double hit_rate = 1.0;

  uint64_t active_bytes = 0;  // read for one decoded token: matrices, experts, cache
  StepTime decode;            // of one step of all streams
  double decode_tokens_per_second = 0;
  StepTime prefill;  // of one chunk of max_rows
  double prefill_tokens_per_second = 0;
};

MemoryPlan plan_memory(const PlannedModel& model, const cache::CacheLayout& cache,
                       const PlanRequest& request);

}  // namespace deepinfer::models
