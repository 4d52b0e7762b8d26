#include "models/experts/streamed_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "weights/disk/streamed_blocks.h"

namespace deepinfer::models {
namespace {

using weights::ExpertTensors;

constexpr size_t kMatrices = 3;
// Between matrices of a slot: kernels prefetch past their panels.
constexpr size_t kMatrixGap = 8192;
// Experts whose raw bytes wait to be packed at the same time.
constexpr size_t kPackBatch = 4;
constexpr size_t kSlotOverhead = 3 * 4096;  // of StreamedBlocks, at most

std::array<const ScaledView*, kMatrices> views_of(const ExpertTensors& expert) {
  return {&expert.gate, &expert.up, &expert.down};
}

bool is_packed(const ExpertTensors& expert) {
  return expert.gate.codes.panels != PanelLayout::rows;
}

// Where the three matrices lie in a slot.
struct SlotLayout {
  std::array<size_t, kMatrices> offset{};
  std::array<size_t, kMatrices> bytes{};
  size_t total = 0;
};

Result<SlotLayout> slot_layout(const ExpertTensors& expert, kernels::Target target) {
  SlotLayout layout;
  layout.bytes = TRY(packed_bytes(expert, target));
  const size_t gap = is_packed(expert) ? 0 : kMatrixGap;
  for (size_t i = 0; i < kMatrices; ++i) {
    layout.offset[i] = layout.total;
    layout.total += layout.bytes[i] + gap;
  }
  return layout;
}

bool same_shape(const ExpertTensors& a, const ExpertTensors& b) {
  const auto left = views_of(a), right = views_of(b);
  for (size_t i = 0; i < kMatrices; ++i) {
    if (left[i]->codes.dtype != right[i]->codes.dtype ||
        left[i]->codes.shape != right[i]->codes.shape ||
        left[i]->codes.panels != right[i]->codes.panels ||
        left[i]->scales.dtype != right[i]->scales.dtype ||
        left[i]->scales.shape != right[i]->scales.shape) {
      return false;
    }
  }
  return true;
}

}  // namespace

struct StreamedExperts::State {
  Options options;
  ThreadPool* pool = nullptr;
  std::vector<ExpertTensors> experts;  // [blocks]
  std::vector<uint32_t> first_block;   // [layers + 1]
  SlotLayout layout;
  std::unique_ptr<weights::StreamedBlocks> blocks;
  struct Bound {
    uint32_t block = UINT32_MAX;
    ExpertMatrices matrices;
  };
  std::vector<Bound> bound;  // [slots]: the matrices over a slot's bytes, for the block they show

  Result<void> pack(uint32_t block, std::span<const std::byte> raw, std::span<std::byte> slot);
  Result<void> bind(uint32_t block, const std::byte* slot, Bound& bound) const;
};

// The views of the checkpoint, moved from the mapping to the bytes that were read.
Result<void> StreamedExperts::State::pack(uint32_t block, std::span<const std::byte> raw,
                                          std::span<std::byte> slot) {
  const auto views = views_of(experts[block]);
  const std::byte* at = raw.data();
  for (size_t i = 0; i < kMatrices; ++i) {
    ScaledView view = *views[i];
    view.codes.data = at;
    at += view.codes.bytes();
    if (views[i]->scaled()) {
      view.scales.data = at;
      at += view.scales.bytes();
    }
    TRY(check_scaled(view, fmt::format("expert {}", block)));
    TRY(kernels::PackedMatrix::pack_into(view, options.target,
                                         slot.subspan(layout.offset[i], layout.bytes[i])));
  }
  return {};
}

Result<void> StreamedExperts::State::bind(uint32_t block, const std::byte* slot,
                                          Bound& target) const {
  const auto views = views_of(experts[block]);
  kernels::PackedMatrix* matrices[kMatrices] = {&target.matrices.gate, &target.matrices.up,
                                                &target.matrices.down};
  for (size_t i = 0; i < kMatrices; ++i) {
    ScaledView view = *views[i];
    view.codes.data = slot + layout.offset[i];
    view.codes.panels = kernels::panel_layout(options.target.isa);
    view.scales.data = nullptr;
    *matrices[i] = TRY(kernels::PackedMatrix::pack(view, options.target, *pool));
  }
  target.block = block;
  return {};
}

Result<uint64_t> StreamedExperts::floor_bytes(const ExpertTensors& expert, const Options& options) {
  const SlotLayout layout = TRY(slot_layout(expert, options.target));
  const uint64_t waiting = is_packed(expert) ? 0 : kPackBatch * (expert.bytes() + 4096);
  return waiting + options.per_token * (layout.total + kSlotOverhead);
}

Result<std::unique_ptr<StreamedExperts>> StreamedExperts::create(
    const weights::Checkpoint& checkpoint,
    std::span<const std::span<const weights::ExpertTensors>> layers, ThreadPool& pool,
    const Options& options) {
  auto state = std::make_unique<State>();
  State& s = *state;
  s.options = options;
  s.pool = &pool;
  std::vector<std::vector<weights::BlockPart>> parts;
  for (const std::span<const ExpertTensors> layer : layers) {
    s.first_block.push_back(static_cast<uint32_t>(s.experts.size()));
    for (const ExpertTensors& expert : layer) {
      check(s.experts.empty() || same_shape(s.experts.front(), expert), "experts of one shape");
      s.experts.push_back(expert);
      std::vector<weights::BlockPart>& block = parts.emplace_back();
      const auto add = [&](const TensorView& view, size_t bytes) {
        const weights::Checkpoint::Place place = checkpoint.locate(view.data);
        block.push_back({static_cast<uint32_t>(place.file), place.offset, bytes, place.checksum});
      };
      for (const ScaledView* view : views_of(expert)) {
        if (is_packed(expert)) {
          add(view->codes, TRY(kernels::PackedMatrix::packed_bytes(*view, options.target)));
        } else {
          add(view->codes, view->codes.bytes());
          if (view->scaled()) add(view->scales, view->scales.bytes());
        }
      }
    }
  }
  s.first_block.push_back(static_cast<uint32_t>(s.experts.size()));
  check(!s.experts.empty(), "a source of one expert or more");

  const ExpertTensors& first = s.experts.front();
  s.layout = TRY(slot_layout(first, options.target));
  const uint64_t floor = TRY(floor_bytes(first, options));
  if (options.budget_bytes < floor) {
    return Error::exhausted(
        "memory for streamed experts",
        fmt::format("{} bytes, at least {} are needed ({} experts of {} bytes, and what waits to "
                    "be packed)",
                    options.budget_bytes, floor, options.per_token, s.layout.total));
  }
  const uint64_t spare = options.budget_bytes - floor;
  weights::StreamedBlocks::Options cache;
  cache.slots = options.per_token + spare / (s.layout.total + kSlotOverhead);
  cache.slots = std::min(cache.slots, s.experts.size());
  cache.slot_bytes = s.layout.total;
  cache.batch = kPackBatch;
  cache.parallel = [&pool](size_t count, const std::function<void(size_t)>& function) {
    pool.run(count, [&](size_t i, size_t) { function(i); });
  };
  State* raw = state.get();
  if (!is_packed(first)) {
    cache.transform = [raw](uint32_t block, std::span<const std::byte> bytes,
                            std::span<std::byte> slot) { return raw->pack(block, bytes, slot); };
  }
  s.bound.resize(cache.slots);
  auto reader = TRY(weights::DiskReader::open(checkpoint.files(), options.disk));
  s.blocks = TRY(weights::StreamedBlocks::create(std::move(reader), std::move(parts),
                                                 checkpoint.files(), std::move(cache)));
  return std::unique_ptr<StreamedExperts>(new StreamedExperts(std::move(state)));
}

StreamedExperts::StreamedExperts(std::unique_ptr<State> state) : state_(std::move(state)) {}
StreamedExperts::~StreamedExperts() = default;

Result<ExpertLease> StreamedExperts::acquire(size_t layer, std::span<const int32_t> experts) {
  State& s = *state_;
  check(layer + 1 < s.first_block.size(), "source layer");
  std::vector<uint32_t> ids;
  for (const int32_t expert : experts) {
    const uint32_t id = s.first_block[layer] + static_cast<uint32_t>(expert);
    check(expert >= 0 && id < s.first_block[layer + 1], "expert of the layer");
    ids.push_back(id);
  }
  weights::StreamedBlocks::Lease blocks = TRY(s.blocks->acquire(ids));
  ExpertLease lease;
  for (size_t i = 0; i < blocks.slots.size(); ++i) {
    State::Bound& bound = s.bound[blocks.slot_index[i]];
    if (bound.block != ids[i]) {
      if (Result<void> result = s.bind(ids[i], blocks.slots[i], bound); !result.ok()) {
        s.blocks->release(blocks);
        return std::move(result).error();
      }
    }
    lease.matrices.push_back(&bound.matrices);
  }
  lease.release = [cache = s.blocks.get(), held = std::move(blocks)] { cache->release(held); };
  return lease;
}

size_t StreamedExperts::resident_bytes() const { return state_->blocks->bytes(); }
size_t StreamedExperts::slot_count() const { return state_->blocks->slot_count(); }
size_t StreamedExperts::expert_bytes() const { return state_->layout.total; }

StreamCounters StreamedExperts::counters() const {
  const weights::StreamedCounters& seen = state_->blocks->counters();
  return {seen.hits, seen.misses, seen.bytes_read, seen.wait_seconds};
}

std::string StreamedExperts::text() const {
  const size_t layers = state_->first_block.size() - 1;
  const double sets =
      static_cast<double>(slot_count()) / static_cast<double>(layers * state_->options.per_token);
  return fmt::format("{} slots of {:.1f} MB: {:.2f} times what a token reads", slot_count(),
                     static_cast<double>(expert_bytes()) / 1e6, sets);
}

}  // namespace deepinfer::models
