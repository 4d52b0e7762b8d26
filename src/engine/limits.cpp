#include "engine/limits.h"

#include <algorithm>
#include <string>

#include "base/memory.h"

namespace deepinfer::engine {
namespace {

constexpr size_t kMebi = size_t{1} << 20;
// A step's logits are read once and thrown away: more than this would only wash the caches.
constexpr size_t kLogitsBytes = 64 * kMebi;
// Of the default cache: start-up reserves little address space unless someone asks for more.
constexpr size_t kDefaultCacheBytes = 2048 * kMebi;

size_t default_cache_bytes(size_t wanted) {
  const size_t memory = total_memory_bytes();
  const size_t quarter = memory == 0 ? kDefaultCacheBytes : memory / 4;
  return std::min({wanted, kDefaultCacheBytes, quarter});
}

}  // namespace

Result<Limits> compute_limits(const models::Model& model, const Engine::Options& options) {
  const weights::ModelConfig& config = model.config();
  const size_t page_bytes = model.cache_layout().page_bytes();
  if (options.max_sequences == 0) return Error::invalid("max_sequences", "0, one is the least");
  if (options.max_rows == 0) return Error::invalid("max_rows", "0, one is the least");
  if (options.max_waiting == 0) return Error::invalid("max_waiting", "0, one is the least");
  if (options.context > config.context) {
    return Error::invalid("context", std::to_string(options.context) +
                                         " asked for, the model was trained for " +
                                         std::to_string(config.context));
  }
  Limits limits;
  limits.rows = options.max_rows;
  limits.sequences = std::min(options.max_sequences, options.max_rows);
  limits.waiting = options.max_waiting;
  limits.context = options.context == 0 ? config.context : options.context;
  // Enough for all sequences; more would never be used.
  const size_t most_pages = limits.sequences * cache::pages_for(limits.context);
  const size_t bytes =
      options.cache_bytes == 0 ? default_cache_bytes(most_pages * page_bytes) : options.cache_bytes;
  limits.pages = std::min(most_pages, bytes / page_bytes);
  if (limits.pages == 0) {
    return Error::invalid("cache", std::to_string(bytes) + " bytes hold no page of " +
                                       std::to_string(page_bytes) + " bytes (128 tokens)");
  }
  limits.cache_bytes = limits.pages * page_bytes;
  limits.snapshot_bytes = options.prefix_cache ? options.snapshot_bytes : 0;
  limits.context = std::min(limits.context, limits.pages * cache::kTokensPerPage);
  const size_t row_bytes = size_t{config.vocab} * sizeof(float);
  limits.logits_rows = std::min(limits.rows, std::max(limits.sequences, kLogitsBytes / row_bytes));
  return limits;
}

std::string Limits::text() const {
  return std::to_string(sequences) + " sequences of " + std::to_string(context) + " tokens, " +
         std::to_string(rows) + " rows a step (" + std::to_string(logits_rows) + " with logits), " +
         std::to_string(pages) + " pages (" + std::to_string(cache_bytes / kMebi) + " MiB), " +
         std::to_string(snapshot_bytes / kMebi) + " MiB of snapshots, " + std::to_string(waiting) +
         " waiting";
}

}  // namespace deepinfer::engine
