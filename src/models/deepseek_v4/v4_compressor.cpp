#include "models/deepseek_v4/v4_compressor.h"

#include "kernels/attention/latent_rows.h"
#include "kernels/hadamard.h"

namespace deepinfer::models {

Result<V4Compressor> load_v4_compressor(const weights::CompressorTensors& tensors, size_t ratio,
                                        size_t dim, const std::string& name, MatrixLoader& loader) {
  V4Compressor compressor;
  compressor.ratio = ratio;
  compressor.dim = dim;
  compressor.kv = TRY(loader.matrix(tensors.kv, name + " kv"));
  compressor.gate = TRY(loader.matrix(tensors.gate, name + " gate"));
  compressor.ape = TRY(loader.floats(tensors.ape, name + " ape"));
  compressor.norm = TRY(loader.floats(tensors.norm, name + " norm"));
  return compressor;
}

size_t pending_row_bytes(size_t ratio, size_t dim) {
  return 2 * (ratio == kOverlapRatio ? 2 * dim : dim) * sizeof(float);
}

size_t pending_rows_kept(size_t ratio) {
  return ratio == kOverlapRatio ? 2 * ratio - 1 : ratio - 1;
}

V4EntryMaker::V4EntryMaker(kernels::Target target, Rounding rounding, float norm_eps, RowWork& work)
    : target_(target),
      rounding_(rounding),
      norm_eps_(norm_eps),
      work_(work),
      pool_entry_(kernels::softmax_pool(target.isa)) {}

void V4EntryMaker::create(size_t threads, size_t ratio, size_t dim) {
  scratch_.resize(threads);
  for (Scratch& scratch : scratch_) {
    scratch.scores.resize(std::max(ratio, 2 * kOverlapRatio));
    scratch.values.resize(scratch.scores.size());
    scratch.entry.resize(dim);
    scratch.rotation.resize(dim);
  }
}

void V4EntryMaker::finish_rows(const V4Compressor& compressor, WindowCache& windows, size_t ring,
                               std::span<const uint64_t> positions) {
  const size_t width = compressor.width();
  work_.for_rows(positions.size(), 2 * width, [&](size_t row, size_t) {
    float* pending = reinterpret_cast<float*>(windows.fresh(ring, row));
    const float* ape = compressor.ape.data() + positions[row] % compressor.ratio * width;
    work_.ops().add(pending + width, ape, width);
    work_.expect_finite(pending, 2 * width);
  });
}

// The rows that an entry pools, ascending; returns how many.
size_t V4EntryMaker::gather(const V4Compressor& compressor, const WindowCache& windows, size_t ring,
                            const Entry& entry, Scratch& scratch) const {
  const size_t width = compressor.width();
  size_t slots = 0;
  const auto take = [&](uint64_t position, size_t offset) {
    const float* row = reinterpret_cast<const float*>(windows.at(ring, *entry.run, position));
    scratch.values[slots] = row + offset;
    scratch.scores[slots] = row + width + offset;
    ++slots;
  };
  const uint64_t first = uint64_t{entry.index} * compressor.ratio;
  if (compressor.overlaps() && entry.index > 0) {
    for (uint64_t p = first - compressor.ratio; p < first; ++p) take(p, 0);
  }
  const size_t half = compressor.overlaps() ? compressor.dim : 0;
  for (uint64_t p = first; p < first + compressor.ratio; ++p) take(p, half);
  return slots;
}

void V4EntryMaker::make(const V4Compressor& compressor, const WindowCache& windows, size_t ring,
                        std::span<const StepRun> runs, const RopeRows& rope, const PageLists& pages,
                        const EntryStore& store) {
  entries_.clear();
  for (const StepRun& run : runs) {
    const size_t end = run.end_position() / compressor.ratio;
    for (size_t k = run.first_position / compressor.ratio; k < end; ++k) {
      entries_.push_back({.run = &run, .index = k});
    }
  }
  const size_t dim = compressor.dim;
  const kernels::LatentRowOps& latent = kernels::latent_row_ops(target_.isa);
  work_.pool().run(entries_.size(), [&](size_t chunk, size_t worker) {
    const Entry& entry = entries_[chunk];
    Scratch& scratch = scratch_[worker];
    float* values = scratch.entry.data();
    const size_t slots = gather(compressor, windows, ring, entry, scratch);
    pool_entry_(scratch.scores.data(), scratch.values.data(), slots, dim, values);
    work_.ops().rms_norm(values, compressor.norm.data(), norm_eps_, values, dim);
    rounding_.bf16(values, dim);
    rope.rotate_at(work_.ops(), uint64_t{entry.index} * compressor.ratio, values, dim,
                   scratch.rotation.data());
    rounding_.bf16(values, dim);
    if (store.hadamard) {
      kernels::hadamard(values, dim);
      rounding_.bf16(values, dim);
    }
    work_.expect_finite(values, dim);
    std::byte* page = pages.of(entry.run->sequence)[entry.index / store.per_page];
    latent.encode(store.format, values,
                  page + entry.index % store.per_page * store.format.row_bytes());
  });
}

}  // namespace deepinfer::models
