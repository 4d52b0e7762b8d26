#include "models/plan/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <type_traits>

namespace deepinfer::models {
namespace {

using weights::Part;
using weights::TensorSpec;

// A row of an Engram table and its scales, each within one block of the disk.
constexpr double kTableReadBytes = 2 * 4096;

// What attention reads for one query at a position, in all layers.
struct CacheReads {
  double bytes = 0;
  double operations = 0;
};

// Rows of one kind: scores and values of `heads` heads of `width`, or scores alone.
void add_rows(CacheReads& reads, double rows, double row_bytes, double heads, double width,
              double products) {
  reads.bytes += rows * row_bytes;
  reads.operations += rows * heads * width * 2 * products;
}

CacheReads reads_of(const weights::LlamaConfig& config, KvMode kv, double position) {
  CacheReads reads;
  const double value = kv == KvMode::f32 ? 4 : 2;
  const double row = 2.0 * config.kv_heads * config.head_dim * value;
  add_rows(reads, position * config.layers, row, config.heads, config.head_dim, 2);
  return reads;
}

CacheReads reads_of(const weights::DeepseekV3Config& config, KvMode kv, double position) {
  CacheReads reads;
  const double value = kv == KvMode::f32 ? 4 : 2;
  const double width = static_cast<double>(config.kv_lora) + config.rope_dim;
  double rows = position;
  if (config.index_topk > 0) {
    rows = std::min<double>(position, config.index_topk);
    add_rows(reads, position * config.layers, config.index_dim * value, config.index_heads,
             config.index_dim, 1);
  }
  add_rows(reads, rows * config.layers, width * value, config.heads, width, 2);
  return reads;
}

CacheReads reads_of(const weights::DeepseekV4Config& config, KvMode kv, double position) {
  CacheReads reads;
  const bool plain = kv == KvMode::f32;
  const double row =
      plain ? config.head_dim * 4.0 : config.head_dim + config.rope_dim + config.head_dim / 64.0;
  const double key = plain ? config.indexer.dim * 4.0 : config.indexer.dim * (0.5 + 1.0 / 32);
  for (const uint32_t ratio : config.ratios) {
    double rows = std::min<double>(position, config.window);
    if (ratio == 4) {
      const double visible = position / ratio;
      rows += std::min<double>(visible, config.indexer.topk);
      add_rows(reads, visible, key, config.indexer.heads, config.indexer.dim, 1);
    } else if (ratio != 0) {
      rows += position / ratio;
    }
    add_rows(reads, rows, row, config.heads, config.head_dim, 2);
  }
  return reads;
}

CacheReads reads_of(const weights::DeepseekV41Config& config, KvMode kv, double position) {
  CacheReads reads;
  const bool plain = kv == KvMode::f32;
  const double dim = config.head_dim;
  const double window_row = plain ? dim * 4 : dim * (1 + 1.0 / 32);
  const double entry =
      plain ? dim * 4 : dim * (config.fp4_sparse_kv ? 0.5 + 1.0 / 16 : 1 + 1.0 / 32);
  const double key = config.indexer.dim * (plain ? 4.0 : 0.5 + 1.0 / 32);
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    add_rows(reads, std::min<double>(position, config.window), window_row, config.heads, dim, 2);
    if (config.ratios[layer] == 0) continue;
    double visible = position / config.ratios[layer];
    add_rows(reads, std::min<double>(visible, config.indexer.topk), entry, config.heads, dim, 2);
    if (!std::ranges::binary_search(config.index_sources, layer)) continue;
    if (config.candidate_source && layer > *config.candidate_source) {
      visible =
          std::min(visible, static_cast<double>(config.candidate_blocks) * config.candidate_block);
    }
    add_rows(reads, visible, key, config.indexer.heads, config.indexer.dim, 1);
  }
  return reads;
}

// Routed experts of the backbone.
struct Routing {
  double layers = 0;  // that have them
  double experts = 0;
  double per_token = 0;
  double hidden = 0;
  double width = 0;
  double streams = 1;  // of the residual
  double query = 0;    // heads * values of a head
  double tables = 0;   // rows of Engram tables that a token looks up
};

Routing routing_of(const weights::LlamaConfig& config) {
  return {.hidden = static_cast<double>(config.hidden),
          .width = static_cast<double>(config.intermediate),
          .query = static_cast<double>(config.heads) * config.head_dim};
}
Routing routing_of(const weights::DeepseekV3Config& config) {
  return {.layers = static_cast<double>(config.layers - config.dense_layers),
          .experts = static_cast<double>(config.moe.experts),
          .per_token = static_cast<double>(config.moe.per_token),
          .hidden = static_cast<double>(config.hidden),
          .width = static_cast<double>(config.moe.width),
          .query = static_cast<double>(config.heads) * (config.kv_lora + config.rope_dim)};
}
template <class Config>
Routing routing_of(const Config& config) {
  Routing routing = {.layers = static_cast<double>(config.layers),
                     .experts = static_cast<double>(config.moe.experts),
                     .per_token = static_cast<double>(config.moe.per_token),
                     .hidden = static_cast<double>(config.hidden),
                     .width = static_cast<double>(config.moe.width),
                     .streams = static_cast<double>(config.hyper.streams),
                     .query = static_cast<double>(config.heads) * config.head_dim};
  if constexpr (std::is_same_v<Config, weights::DeepseekV41Config>) {
    const weights::EngramConfig& engram = config.engram;
    if (!engram.layers.empty()) {
      routing.tables =
          static_cast<double>(engram.layers.size()) * (engram.max_ngram - 1) * engram.heads;
    }
  }
  return routing;
}

bool is_scale(std::string_view name) {
  return name.ends_with(".scale") || name.ends_with(".weight_scale_inv");
}

bool is_int8_product(const TensorSpec& spec) {
  return spec.dtype == DType::i8 || spec.dtype == DType::u8 || spec.dtype == DType::f4_e2m1 ||
         dtype_info(spec.dtype).block_elements > 2;
}

// Bytes and products of what every token reads, and of all experts.
struct Work {
  double dense_bytes = 0;
  double dense_float = 0, dense_int8 = 0;  // operations of one token, without the head
  double head_float = 0, head_int8 = 0;    // of one row whose logits are wanted
  double expert_bytes = 0;                 // of all experts of the backbone
  double expert_float = 0, expert_int8 = 0;
  double table_bytes = 0;
  double draft_expert_bytes = 0;
};

Work work_of(const std::vector<TensorSpec>& tensors, bool tied) {
  Work work;
  for (const TensorSpec& spec : tensors) {
    const double bytes = static_cast<double>(spec.bytes());
    const bool halves = spec.dtype == DType::i8 || spec.dtype == DType::u8;  // two FP4 codes a byte
    const bool product = spec.shape.rank() >= 2 && !is_scale(spec.name);
    const double operations =
        product ? 2.0 * static_cast<double>(spec.shape.elements()) * (halves ? 2 : 1) : 0;
    const bool int8 = is_int8_product(spec);
    switch (spec.part) {
      case Part::experts:
        work.expert_bytes += bytes;
        (int8 ? work.expert_int8 : work.expert_float) += operations;
        break;
      case Part::engram_table:
        work.table_bytes += bytes;
        break;
      case Part::draft_experts:
        work.draft_expert_bytes += bytes;
        break;
      case Part::embedding:
        if (!tied) break;  // one row of it is looked up; else it is the head too
        [[fallthrough]];
      case Part::head:
        work.dense_bytes += bytes;
        (int8 ? work.head_int8 : work.head_float) += operations;
        break;
      case Part::draft:
      case Part::vision:
        break;
      default:
        work.dense_bytes += bytes;
        (int8 ? work.dense_int8 : work.dense_float) += operations;
    }
  }
  return work;
}

// Different experts that `rows` rows choose in one layer, when all are equally likely.
double union_of(const Routing& routing, double rows) {
  if (routing.experts == 0) return 0;
  return routing.experts * (1 - std::pow(1 - routing.per_token / routing.experts, rows));
}

// One step of `rows` rows, `heads` of which get logits; each reads `cache`.
StepTime step_time(const Work& work, const Routing& routing, const MemoryPlan& plan,
                   const PlanRates& rates, double rows, double heads, const CacheReads& cache) {
  const double experts = union_of(routing, rows) * routing.layers;
  const double expert_bytes = experts * static_cast<double>(plan.expert_bytes);
  StepTime time;
  time.memory_seconds =
      (work.dense_bytes + expert_bytes + rows * cache.bytes) / (rates.memory_read * kMemoryShare);
  if (!plan.resident && rates.disk_read > 0) {
    const double tables = plan.tables_on_disk ? rows * routing.tables * kTableReadBytes : 0;
    time.disk_seconds = ((1 - plan.hit_rate) * expert_bytes + tables) / rates.disk_read;
  }
  const double share = routing.experts > 0 ? routing.per_token / routing.experts : 0;
  const double floats = rows * (work.dense_float + work.expert_float * share + cache.operations) +
                        heads * work.head_float;
  const double int8 = rows * (work.dense_int8 + work.expert_int8 * share) + heads * work.head_int8;
  time.arithmetic_seconds =
      (floats / rates.float_products + int8 / rates.int8_products) / kProductShare;
  return time;
}

// Floats of the buffers of a step: residual streams and their copies, queries and their outputs,
// gate, up and down of the experts of a row; and the logits of each stream.
uint64_t workspace_of(const Routing& routing, const PlanRequest& request, uint64_t vocab) {
  const double row = routing.hidden * (2 * routing.streams + 6) + 3 * routing.query +
                     std::max(1.0, routing.per_token) * (2 * routing.width + routing.hidden);
  const double floats = row * static_cast<double>(request.max_rows) +
                        static_cast<double>(vocab) * static_cast<double>(request.streams);
  return static_cast<uint64_t>(floats) * sizeof(float);
}

// Share of the layers that a row of a prompt runs on average: the decoder layers of V4.1 run for a
// prompt's tail only (Model::decoder_tail).
double prompt_share(const AnyConfig& any, double prompt) {
  const auto* config = std::get_if<weights::DeepseekV41Config>(&any);
  if (config == nullptr) return 1;
  const double layers = config->layers, encoder = config->first_decoder_layer();
  const auto tail = static_cast<double>(config->decoder_tail());
  return (encoder + (layers - encoder) * std::min(1.0, tail / prompt)) / layers;
}

void add_cache(const cache::CacheLayout& cache, const PlanRequest& request, MemoryPlan& plan) {
  plan.cache_bytes_per_token =
      static_cast<double>(cache.page_bytes()) / static_cast<double>(cache::kTokensPerPage);
  plan.cache_bytes_per_sequence = cache.frontier_bytes();
  plan.cache_bytes = request.streams * (cache::pages_for(request.context) * cache.page_bytes() +
                                        plan.cache_bytes_per_sequence);
}

// What stays in memory: everything; or everything but tables; or as many experts as fit.
void place_weights(const Work& work, const Routing& routing, const PlanRequest& request,
                   MemoryPlan& plan) {
  const auto experts = static_cast<uint64_t>(work.expert_bytes + work.draft_expert_bytes);
  const auto tables = static_cast<uint64_t>(work.table_bytes);
  plan.streamable_bytes = experts + tables;
  const uint64_t fixed =
      plan.weight_bytes - plan.streamable_bytes + plan.cache_bytes + plan.workspace_bytes;
  plan.needed_bytes = fixed + plan.streamable_bytes;
  const uint64_t working_set =
      plan.expert_bytes * static_cast<uint64_t>(routing.per_token);  // of one row in one layer
  plan.floor_bytes = fixed + working_set;
  plan.runs = request.memory >= plan.floor_bytes;
  plan.resident = request.memory >= plan.needed_bytes;
  plan.tables_on_disk = !plan.resident && tables > 0;
  plan.expert_slots = plan.expert_count;
  if (plan.resident || plan.expert_bytes == 0 || request.memory >= fixed + experts) return;
  const uint64_t room = request.memory > fixed ? request.memory - fixed : 0;
  plan.stream_bytes = room;
  // The drafter's experts take their share of the room.
  plan.hit_rate = static_cast<double>(room) / static_cast<double>(experts);
  plan.expert_slots = static_cast<uint64_t>(plan.hit_rate * static_cast<double>(plan.expert_count));
}

}  // namespace

std::vector<PartBytes> add_up_parts(const std::vector<TensorSpec>& tensors) {
  std::map<Part, PartBytes> parts;
  for (const TensorSpec& spec : tensors) {
    PartBytes& part = parts[spec.part];
    part.part = spec.part;
    ++part.tensors;
    part.bytes += spec.bytes();
  }
  std::vector<PartBytes> list;
  for (const auto& [part, bytes] : parts) list.push_back(bytes);
  return list;
}

std::string_view bound_name(Bound bound) {
  switch (bound) {
    case Bound::memory:
      return "memory";
    case Bound::disk:
      return "disk";
    case Bound::arithmetic:
      return "arithmetic";
  }
  return "";
}

double StepTime::seconds() const {
  return std::max({memory_seconds, disk_seconds, arithmetic_seconds});
}

Bound StepTime::bound() const {
  if (disk_seconds == seconds() && disk_seconds > 0) return Bound::disk;
  return memory_seconds == seconds() ? Bound::memory : Bound::arithmetic;
}

MemoryPlan plan_memory(const PlannedModel& model, const cache::CacheLayout& cache,
                       const PlanRequest& request) {
  const Routing routing =
      std::visit([](const auto& config) { return routing_of(config); }, model.config);
  const auto* llama = std::get_if<weights::LlamaConfig>(&model.config);
  const Work work = work_of(model.tensors, llama != nullptr && llama->tied_embeddings);
  MemoryPlan plan;
  plan.parts = add_up_parts(model.tensors);
  for (const PartBytes& part : plan.parts) {
    plan.tensors += part.tensors;
    plan.weight_bytes += part.bytes;
  }
  add_cache(cache, request, plan);
  plan.workspace_bytes = workspace_of(routing, request, base_config(model.config).vocab);
  plan.expert_count = static_cast<uint64_t>(routing.layers * routing.experts);
  plan.experts_per_token = static_cast<uint64_t>(routing.layers * routing.per_token);
  if (plan.expert_count > 0) {
    plan.expert_bytes = static_cast<uint64_t>(work.expert_bytes) / plan.expert_count;
  }
  place_weights(work, routing, request, plan);
  const PlanRates& rates = request.rates;
  if (!(rates.memory_read > 0 && rates.float_products > 0 && rates.int8_products > 0)) return plan;
  const auto reads = [&](double position) {
    return std::visit([&](const auto& config) { return reads_of(config, request.kv, position); },
                      model.config);
  };
  const double context = static_cast<double>(request.context);
  const CacheReads late = reads(context), middle = reads(context / 2);
  const double streams = static_cast<double>(request.streams);
  plan.active_bytes = static_cast<uint64_t>(
      work.dense_bytes + static_cast<double>(plan.experts_per_token * plan.expert_bytes) +
      late.bytes);
  plan.decode = step_time(work, routing, plan, request.rates, streams, streams, late);
  plan.decode_tokens_per_second = streams / plan.decode.seconds();
  // Rows of a chunk share what they read of the cache.
  const double rows =
      static_cast<double>(std::min(request.max_rows, std::max<uint64_t>(1, request.context)));
  const CacheReads shared = {.bytes = middle.bytes / rows, .operations = middle.operations};
  plan.prefill = step_time(work, routing, plan, request.rates, rows, 1, shared);
  const double layers = prompt_share(model.config, context);
  plan.prefill.memory_seconds *= layers;
  plan.prefill.disk_seconds *= layers;
  plan.prefill.arithmetic_seconds *= layers;
  plan.prefill_tokens_per_second = rows / plan.prefill.seconds();
  return plan;
}

}  // namespace deepinfer::models
