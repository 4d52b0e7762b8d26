#include "sampling/fixed_draw.h"

#include <bit>

#include "base/check.h"
#include "sampling/philox.h"

namespace deepinfer::sampling {
namespace {

constexpr size_t kWideRow = 8192;
constexpr size_t kWideLanes = 2048;

// Uniform below `total` without bias: values at or above the last whole multiple are thrown away.
uint64_t draw_below(uint64_t total, const StreamKey& key) {
  const uint64_t bound = 0xFFFFFFFFull / total * total;
  for (uint64_t i = 0;; ++i) {
    const uint64_t x = stream_value(key, i);
    if (x < bound) return x % total;
  }
}

}  // namespace

uint32_t stream_value(const StreamKey& key, uint64_t i) {
  const uint64_t sequence = 3 * key.position + static_cast<uint64_t>(key.kind);
  return philox4x32(key.seed, i / 4, sequence)[i % 4];
}

float stream_uniform(const StreamKey& key) {
  return static_cast<float>(stream_value(key, 0)) * 0x1p-32f + 0x1p-33f;
}

uint32_t fixed_point(float weight) {
  return static_cast<uint32_t>(static_cast<double>(weight) * 0x1p31);
}

size_t lane_count(size_t width) { return width >= kWideRow ? kWideLanes : std::bit_ceil(width); }

size_t draw_fixed(std::span<const int32_t> ids, std::span<const uint32_t> weights, size_t width,
                  const StreamKey& key, std::vector<uint32_t>& lanes) {
  check(ids.size() == weights.size(), "a weight for each column");
  const size_t count = lane_count(width);
  lanes.assign(count, 0);
  uint64_t total = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    lanes[static_cast<size_t>(ids[i]) % count] += weights[i];
    total += weights[i];
  }
  check(total <= 0xFFFFFFFFull, "the sum of the weights exceeds 32 bits");
  if (total == 0) return ids.size();
  uint64_t left = draw_below(total, key);
  size_t lane = 0;
  while (left >= lanes[lane]) left -= lanes[lane++];
  for (size_t i = 0; i < ids.size(); ++i) {
    if (static_cast<size_t>(ids[i]) % count != lane) continue;
    if (left < weights[i]) return i;
    left -= weights[i];
  }
  check(false, "a lane holds less than its sum");
  return ids.size();
}

}  // namespace deepinfer::sampling
