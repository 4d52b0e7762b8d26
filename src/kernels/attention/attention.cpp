#include "kernels/attention/attention.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "base/check.h"
#include "kernels/attention/attention_kernel.h"

namespace deepinfer::kernels {
namespace {

// Partial results of split sequences; sequences beyond it are not split.
constexpr size_t kMaxPartialBytes = size_t{64} << 20;

// Round to nearest even; NaN becomes a quiet NaN with the same sign.
inline uint16_t to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  return static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : rounded);
}
inline float convert(float value, float) { return value; }
inline uint16_t convert(float value, uint16_t) { return to_bf16(value); }

template <class E>
void append(const AttentionShape& shape, E* page, size_t token, const float* keys,
            const float* values) {
  const size_t dims = shape.head_dim;
  for (size_t head = 0; head < shape.kv_heads; ++head) {
    E* key_slot = page + head * 2 * dims * kPageTokens + token;
    E* value_slot = page + (head * 2 + 1) * dims * kPageTokens + token * dims;
    for (size_t d = 0; d < dims; ++d) {
      key_slot[d * kPageTokens] = convert(keys[head * dims + d], E{});
    }
    for (size_t d = 0; d < dims; ++d) value_slot[d] = convert(values[head * dims + d], E{});
  }
}

// One chunk of the first region: a tile with all its spans, or one span of it.
struct Item {
  AttentionTile tile;
  size_t span = 0;
  size_t partial = kWhole;  // offset in floats into the shared buffer

  static constexpr size_t kWhole = ~size_t{0};
};

struct Plan {
  std::vector<Item> items;
  std::vector<Item> combines;  // second region; span unused
  size_t partial_floats = 0;
};

// A sequence whose pairs fit one tile is cut at spans, so that a single decode row uses all
// threads; longer ones are cut into tiles, the costly late ones first. Results do not depend on it.
void plan_sequence(Plan& plan, const AttentionTile& whole, bool may_split) {
  const AttentionShape& shape = *whole.shape;
  const size_t pairs = whole.sequence->rows * whole.group();
  if (pairs == 0) return;
  AttentionTile tile = whole;
  if (pairs <= kTilePairs) {
    tile.pairs = pairs;
    const size_t spans = tile.span_count();
    const size_t floats = spans * pairs * block_stride(shape);
    const size_t limit = kMaxPartialBytes / sizeof(float);
    const bool split = may_split && spans > 1 &&
                       floats * shape.kv_heads <= limit - std::min(limit, plan.partial_floats);
    for (tile.kv_head = 0; tile.kv_head < shape.kv_heads; ++tile.kv_head) {
      if (!split) {
        plan.items.push_back({.tile = tile});
        continue;
      }
      plan.combines.push_back({.tile = tile, .partial = plan.partial_floats});
      for (size_t span = 0; span < spans; ++span) {
        const size_t at = plan.partial_floats + span * pairs * block_stride(shape);
        plan.items.push_back({.tile = tile, .span = span, .partial = at});
      }
      plan.partial_floats += floats;
    }
    return;
  }
  // Tiles of one head follow each other, since they read the same pages.
  for (tile.kv_head = 0; tile.kv_head < shape.kv_heads; ++tile.kv_head) {
    for (size_t end = pairs; end > 0; end = tile.first_pair) {
      tile.first_pair = (end - 1) / kTilePairs * kTilePairs;
      tile.pairs = end - tile.first_pair;
      plan.items.push_back({.tile = tile});
    }
  }
}

const AttentionKernel& kernel_of(Isa isa) {
  switch (isa) {
    case Isa::ref:
      break;
    case Isa::avx2:
      return avx2::attention_kernel();
    case Isa::avx512:
      return avx512::attention_kernel();
    case Isa::emulated512:
      return emulated512::attention_kernel();
  }
  check(false, "ref has no tiles");
  return avx2::attention_kernel();
}

void attention_ref(ThreadPool& pool, const AttentionShape& shape,
                   std::span<const AttentionSequence> sequences, size_t query_stride,
                   size_t out_stride, AttentionWorkspace& workspace) {
  for (const AttentionSequence& sequence : sequences) {
    const size_t tokens = static_cast<size_t>(sequence.first_position) + sequence.rows;
    workspace.reserve(pool.thread_count(), tokens * sizeof(double), 0);
    pool.run(sequence.rows * shape.heads, [&](size_t chunk, size_t worker) {
      const size_t row = chunk / shape.heads, head = chunk % shape.heads;
      const size_t offset = head * shape.head_dim;
      ref::attention_row(shape, sequence, row, head, sequence.queries + row * query_stride + offset,
                         sequence.out + row * out_stride + offset,
                         reinterpret_cast<double*>(workspace.thread(worker)));
    });
  }
}

}  // namespace

size_t kv_element_bytes(KvForm form) { return form == KvForm::f32 ? sizeof(float) : 2; }

void kv_append(const AttentionShape& shape, std::byte* page, size_t token, const float* keys,
               const float* values) noexcept {
  if (shape.form == KvForm::f32) {
    append(shape, reinterpret_cast<float*>(page), token, keys, values);
  } else {
    append(shape, reinterpret_cast<uint16_t*>(page), token, keys, values);
  }
}

void AttentionWorkspace::reserve(size_t threads, size_t bytes_per_thread, size_t shared_bytes) {
  const size_t rounded = (bytes_per_thread + 63) / 64 * 64;
  if (rounded > per_thread_ || threads * per_thread_ > threads_.size()) {
    per_thread_ = std::max(per_thread_, rounded);
    threads_ = Buffer(threads * per_thread_);
  }
  if (shared_bytes > shared_.size()) shared_ = Buffer(shared_bytes);
}

void attention(ThreadPool& pool, Isa isa, const AttentionShape& shape,
               std::span<const AttentionSequence> sequences, size_t query_stride, size_t out_stride,
               AttentionWorkspace& workspace) {
  check(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, "kv_heads must divide heads");
  check(shape.head_dim > 0 && shape.head_dim % 8 == 0, "head_dim must be a multiple of 8");
  if (isa == Isa::ref) {
    return attention_ref(pool, shape, sequences, query_stride, out_stride, workspace);
  }
  const AttentionKernel& kernel = kernel_of(isa);
  Plan plan;
  for (const AttentionSequence& sequence : sequences) {
    plan_sequence(plan,
                  {.shape = &shape,
                   .sequence = &sequence,
                   .query_stride = query_stride,
                   .out_stride = out_stride},
                  pool.thread_count() > 1);
  }
  if (plan.items.empty()) return;
  workspace.reserve(pool.thread_count(), attention_scratch_floats(shape) * sizeof(float),
                    plan.partial_floats * sizeof(float));
  float* partials = reinterpret_cast<float*>(workspace.shared());
  pool.run(plan.items.size(), [&](size_t chunk, size_t worker) {
    const Item& item = plan.items[chunk];
    float* scratch = reinterpret_cast<float*>(workspace.thread(worker));
    if (item.partial == Item::kWhole) {
      kernel.whole(item.tile, scratch);
    } else {
      kernel.span(item.tile, item.span, partials + item.partial, scratch);
    }
  });
  if (plan.combines.empty()) return;
  pool.run(plan.combines.size(), [&](size_t chunk, size_t) {
    const Item& item = plan.combines[chunk];
    kernel.combine(item.tile, partials + item.partial);
  });
}

}  // namespace deepinfer::kernels
