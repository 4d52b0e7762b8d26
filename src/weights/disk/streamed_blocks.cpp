#include "weights/disk/streamed_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/hash.h"

namespace deepinfer::weights {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

// Slots keep their distance from each other's last line, and prefetch past a slot stays mapped.
constexpr size_t kSlotAlignment = 4096;

size_t raw_bytes(const std::vector<BlockPart>& parts) {
  size_t bytes = 0;
  for (const BlockPart& part : parts) bytes += part.bytes;
  return bytes;
}

}  // namespace

struct StreamedBlocks::State {
  struct Slot {
    uint32_t block = kNone;
    uint32_t pins = 0;
    uint64_t used = 0;  // tick of the last acquire()
  };

  std::unique_ptr<DiskReader> reader;
  std::vector<std::vector<BlockPart>> blocks;
  std::vector<std::string> paths;
  Options options;
  size_t stride = 0;
  size_t raw_stride = 0;
  Buffer memory;  // [slots][stride]
  Buffer raw;     // [batch][raw_stride], with a transformation
  std::vector<Slot> slots;
  std::vector<uint32_t> slot_of;  // [blocks], kNone: not here
  uint64_t tick = 0;
  StreamedCounters counters;

  std::byte* slot_data(uint32_t slot) { return memory.data() + slot * stride; }
  uint32_t take_slot();
  Result<void> load(std::span<const uint32_t> missing);
  Result<void> load_batch(std::span<const uint32_t> missing);
  Result<void> verify(uint32_t block, const std::byte* bytes) const;
};

// The least recently used slot that nobody reads; kNone when all are pinned.
uint32_t StreamedBlocks::State::take_slot() {
  uint32_t best = kNone;
  for (uint32_t i = 0; i < slots.size(); ++i) {
    if (slots[i].pins > 0) continue;
    if (slots[i].block == kNone) return i;
    if (best == kNone || slots[i].used < slots[best].used) best = i;
  }
  return best;
}

Result<void> StreamedBlocks::State::verify(uint32_t block, const std::byte* bytes) const {
  for (const BlockPart& part : blocks[block]) {
    if (part.checksum) {
      const uint64_t seen = xxh3_64({bytes, part.bytes});
      if (seen != *part.checksum) {
        return Error::corrupt(
            fmt::format("{} at byte {}", paths[part.file], part.offset),
            fmt::format("checksum is {:016x}, expected {:016x}", seen, *part.checksum));
      }
    }
    bytes += part.bytes;
  }
  return {};
}

Result<void> StreamedBlocks::State::load_batch(std::span<const uint32_t> missing) {
  std::vector<DiskRange> ranges;
  const bool transforms = static_cast<bool>(options.transform);
  const auto landing = [&](size_t i) {
    return transforms ? raw.data() + i * raw_stride : slot_data(slot_of[missing[i]]);
  };
  for (size_t i = 0; i < missing.size(); ++i) {
    std::byte* target = landing(i);
    for (const BlockPart& part : blocks[missing[i]]) {
      ranges.push_back({part.file, part.offset, part.bytes, target});
      target += part.bytes;
      counters.bytes_read += part.bytes;
    }
  }
  TRY(reader->read(ranges));
  std::mutex lock;
  std::optional<Error> error;
  const auto finish = [&](size_t i) {
    Result<void> result = verify(missing[i], landing(i));
    if (result.ok() && transforms) {
      result = options.transform(missing[i], {landing(i), raw_bytes(blocks[missing[i]])},
                                 {slot_data(slot_of[missing[i]]), options.slot_bytes});
    }
    if (result.ok()) return;
    const std::lock_guard<std::mutex> hold(lock);
    if (!error) error = result.error();
  };
  if (options.parallel) {
    options.parallel(missing.size(), finish);
  } else {
    for (size_t i = 0; i < missing.size(); ++i) finish(i);
  }
  if (error) return *std::move(error);
  return {};
}

Result<void> StreamedBlocks::State::load(std::span<const uint32_t> missing) {
  const size_t step = options.transform ? options.batch : missing.size();
  for (size_t first = 0; first < missing.size(); first += step) {
    TRY(load_batch(missing.subspan(first, std::min(step, missing.size() - first))));
  }
  return {};
}

Result<std::unique_ptr<StreamedBlocks>> StreamedBlocks::create(
    std::unique_ptr<DiskReader> reader, std::vector<std::vector<BlockPart>> blocks,
    std::vector<std::string> paths, Options options) {
  check(options.slots > 0 && options.batch > 0, "a cache of one slot or more");
  auto state = std::make_unique<State>();
  State& s = *state;
  s.stride = (options.slot_bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment +
             2 * kSlotAlignment;
  size_t largest = 0;
  for (const std::vector<BlockPart>& parts : blocks) largest = std::max(largest, raw_bytes(parts));
  check(options.transform || largest <= options.slot_bytes, "a block fits its slot");
  if (options.transform) {
    s.raw_stride = (largest + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
    s.raw = TRY(Buffer::create(options.batch * s.raw_stride));
  }
  s.memory = TRY(Buffer::create(options.slots * s.stride));
  s.slots.resize(options.slots);
  s.slot_of.assign(blocks.size(), kNone);
  s.reader = std::move(reader);
  s.blocks = std::move(blocks);
  s.paths = std::move(paths);
  s.options = std::move(options);
  return std::unique_ptr<StreamedBlocks>(new StreamedBlocks(std::move(state)));
}

StreamedBlocks::StreamedBlocks(std::unique_ptr<State> state) : state_(std::move(state)) {}
StreamedBlocks::~StreamedBlocks() = default;

Result<StreamedBlocks::Lease> StreamedBlocks::acquire(std::span<const uint32_t> ids) {
  State& s = *state_;
  ++s.tick;
  Lease lease;
  std::vector<uint32_t> missing;
  // What is here is pinned first, so that room for the missing is never made at its cost.
  for (const uint32_t id : ids) {
    check(id < s.slot_of.size(), "block number");
    if (s.slot_of[id] != kNone) ++s.slots[s.slot_of[id]].pins;
  }
  // ids[ahead ..] lost that pin again: what comes first must find room.
  size_t taken = 0, ahead = ids.size();
  for (; taken < ids.size(); ++taken) {
    const uint32_t id = ids[taken];
    if (s.slot_of[id] == kNone) {
      uint32_t slot = s.take_slot();
      while (slot == kNone && ahead > taken + 1) {
        const uint32_t last = s.slot_of[ids[--ahead]];
        if (last == kNone) continue;
        --s.slots[last].pins;
        slot = s.take_slot();
      }
      if (slot == kNone) break;
      if (s.slots[slot].block != kNone) s.slot_of[s.slots[slot].block] = kNone;
      s.slots[slot] = {.block = id, .pins = 1};
      s.slot_of[id] = slot;
      missing.push_back(id);
    } else {
      if (taken >= ahead) ++s.slots[s.slot_of[id]].pins;
      ++s.counters.hits;
    }
    s.slots[s.slot_of[id]].used = s.tick;
    lease.slot_index.push_back(s.slot_of[id]);
    lease.slots.push_back(s.slot_data(s.slot_of[id]));
  }
  for (size_t i = taken; i < ahead; ++i) {
    if (s.slot_of[ids[i]] != kNone) --s.slots[s.slot_of[ids[i]]].pins;
  }
  check(taken > 0 || ids.empty(), "every slot is pinned: leases are not given back");
  if (missing.empty()) return lease;

  s.counters.misses += missing.size();
  const auto start = std::chrono::steady_clock::now();
  Result<void> result = s.load(missing);
  s.counters.wait_seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (result.ok()) return lease;
  release(lease);
  for (const uint32_t id : missing) {
    s.slots[s.slot_of[id]].block = kNone;
    s.slot_of[id] = kNone;
  }
  return std::move(result).error();
}

void StreamedBlocks::release(const Lease& lease) {
  for (const uint32_t slot : lease.slot_index) {
    check(state_->slots[slot].pins > 0, "a lease ends once");
    --state_->slots[slot].pins;
  }
}

size_t StreamedBlocks::slot_count() const { return state_->slots.size(); }
size_t StreamedBlocks::bytes() const { return state_->memory.size() + state_->raw.size(); }
const StreamedCounters& StreamedBlocks::counters() const { return state_->counters; }

void StreamedBlocks::check_invariants() const {
  const State& s = *state_;
  for (uint32_t slot = 0; slot < s.slots.size(); ++slot) {
    const State::Slot& seen = s.slots[slot];
    check(seen.block == kNone || s.slot_of[seen.block] == slot, "a slot's block knows its slot");
    check(seen.pins == 0 || seen.block != kNone, "a pinned slot holds a block");
  }
  for (uint32_t block = 0; block < s.slot_of.size(); ++block) {
    check(s.slot_of[block] == kNone || s.slots[s.slot_of[block]].block == block,
          "a block's slot knows its block");
  }
}

}  // namespace deepinfer::weights
