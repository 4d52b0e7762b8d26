#include "llm/engine_size.h"

#include <algorithm>
#include <span>
#include <string>

#include "weights/content_id.h"

namespace deepinfer::llm {
namespace {

constexpr uint64_t kLeastFrontiers = 16;

}  // namespace

EngineSize size_engine(const models::Model& model, const SizeRequest& request) {
  const cache::CacheLayout& layout = model.cache_layout();
  const uint64_t usable = request.memory / 10 * 9;
  const uint64_t held = model.resident_bytes();
  const uint64_t spare = usable > held ? usable - held : 0;
  const uint64_t least = cache::pages_for(request.longest) * layout.page_bytes();
  EngineSize size;
  size.cache_bytes = request.cache_bytes;
  if (size.cache_bytes == 0)
    size.cache_bytes = std::max(least, std::min(request.memory / 4, spare / 5 * 4));
  const uint64_t frontier = layout.frontier_bytes();
  if (frontier == 0) return size;
  size.snapshot_bytes = request.snapshot_bytes;
  if (size.snapshot_bytes == 0) {
    size.snapshot_bytes =
        std::max(kLeastFrontiers * frontier, std::min(request.memory / 32, spare / 5));
  }
  return size;
}

Result<Hash128> cache_identity(const weights::Checkpoint& checkpoint, const models::Model& model,
                               const models::ModelOptions& options) {
  const cache::CacheLayout& layout = model.cache_layout();
  std::string text = TRY(weights::content_id(checkpoint));
  text += options.kv == models::KvMode::f32 ? " f32" : " official";
  text += " numerics " + std::to_string(static_cast<int>(options.target.numerics));
  text += " isa " + std::to_string(static_cast<int>(options.target.isa));
  for (const cache::GrowingStream& stream : layout.growing)
    text += " " + stream.name + ":" + std::to_string(stream.bytes_per_page);
  for (const cache::FrontierStream& stream : layout.frontier)
    text += " " + stream.name + ":" + std::to_string(stream.bytes_per_sequence);
  return xxh3_128(std::as_bytes(std::span(text)));
}

}  // namespace deepinfer::llm
