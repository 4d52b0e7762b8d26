#include "models/deepseek_v41/v41_entries.h"

#include <array>
#include <utility>

#include "base/check.h"

namespace deepinfer::models {
V41Entries::V41Entries(const weights::DeepseekV41Config& config, KvMode kv, kernels::Target target,
                       Rounding rounding, RowWork& work, Profile& profile)
    : hidden_(config.hidden),
      dim_(config.head_dim),
      key_dim_(config.indexer.dim),
      eps_(static_cast<float>(config.norm_eps)),
      target_(target),
      rounding_(rounding),
      entry_format_(v41_entry_format(config, kv)),
      key_format_(v41_key_format(config, kv)),
      latent_ops_(kernels::latent_row_ops(target.isa)),
      softmax_pool_(kernels::softmax_pool(target.isa)),
      work_(work),
      profile_(profile) {}

Result<void> V41Entries::create(std::vector<V41EntryStreams> streams, size_t max_rows,
                                size_t threads) {
  streams_ = std::move(streams);
  pooled_ = TRY(Buffer::create(max_rows * dim_ * sizeof(float)));
  keys_ = TRY(Buffer::create(max_rows * key_dim_ * sizeof(float)));
  angles_ = TRY(Buffer::create(threads * dim_ * sizeof(float)));
  return {};
}

size_t V41Entries::bytes() const { return pooled_.size() + keys_.size() + angles_.size(); }

void V41Entries::project(const V41Compressor& weights, const float* h, size_t rows,
                         WindowCache& windows, const std::optional<size_t>& pending) {
  activations_.begin(target_, rows, hidden_,
                     weights.kv.form() | (pending ? weights.gate.form() : 0) | kernels::kRefined);
  work_.for_rows(rows, hidden_,
                 [&](size_t row, size_t) { activations_.fill_row(row, h + row * hidden_); });
  if (!pending) {
    kernels::matmul(work_.pool(), activations_,
                    {{.weights = &weights.kv, .out = pooled_.as<float>(), .stride = dim_}});
    return;
  }
  float* raw = reinterpret_cast<float*>(windows.fresh(*pending, 0));
  kernels::matmul(work_.pool(), activations_,
                  {{.weights = &weights.gate, .out = raw, .stride = 2 * dim_},
                   {.weights = &weights.kv, .out = raw + dim_, .stride = 2 * dim_}});
}

// Blocks that these rows complete, that were not restored. The first half of a block may lie before
// the window of a resumed sequence: then the block was among the restored ones.
void V41Entries::find_made(const V41EntryStreams& streams, std::span<const StepRun> runs) {
  made_.clear();
  for (const StepRun& run : runs) {
    const uint64_t ratio = streams.ratio, end = run.end_position() / ratio;
    const uint64_t first = std::max(run.first_position / ratio, run.start.entries / ratio);
    for (uint64_t entry = first; entry < end; ++entry) {
      check(entry * ratio >= run.start.window, "a gap before the first entry to make");
      made_.push_back({&run, entry});
    }
  }
}

void V41Entries::pool_entry(const V41EntryStreams& streams, const Made& made,
                            const WindowCache& windows, float* out) const {
  constexpr size_t kMaxRatio = 8;
  std::array<const float*, kMaxRatio> scores, values;
  for (size_t i = 0; i < streams.ratio; ++i) {
    scores[i] = reinterpret_cast<const float*>(
        windows.at(*streams.pending, *made.run, made.entry * streams.ratio + i));
    values[i] = scores[i] + dim_;
  }
  softmax_pool_(scores.data(), values.data(), streams.ratio, dim_, out);
}

Result<void> V41Entries::update(size_t source, const V41Compressor& weights, const float* h,
                                std::span<const StepRun> runs, WindowCache& windows,
                                const RopeRows& rope, const std::string& where) {
  const V41EntryStreams& streams = streams_[source];
  const auto timer = profile_.measure(Operation::compressor, weights.kv.bytes());
  const size_t rows = runs.back().first_row + runs.back().rows;
  project(weights, h, rows, windows, streams.pending);
  find_made(streams, runs);
  if (made_.empty()) return {};
  entry_pages_.begin(runs, streams.entries);
  key_pages_.begin(runs, streams.keys);
  const auto place = [&](const PageLists& pages, const Made& made, size_t row_bytes) {
    return pages.of(made.run->sequence)[made.entry / streams.per_page] +
           made.entry % streams.per_page * row_bytes;
  };
  float* pooled = pooled_.as<float>();
  float* keys = keys_.as<float>();
  if (!streams.pending) {
    // Entries of ratio 1 that were restored leave gaps in the rows; the made ones move down.
    for (size_t i = 0; i < made_.size(); ++i) {
      const StepRun& run = *made_[i].run;
      const size_t row = run.first_row + (made_[i].entry - run.first_position);
      if (row != i) std::copy_n(pooled + row * dim_, dim_, pooled + i * dim_);
    }
  }
  activations_.begin(target_, made_.size(), dim_, weights.index_key.form() | kernels::kRefined);
  work_.for_rows(made_.size(), 3 * dim_, [&](size_t i, size_t worker) {
    const Made& made = made_[i];
    float* lat = pooled + i * dim_;
    if (streams.pending) pool_entry(streams, made, windows, lat);
    rounding_.bf16(lat, dim_);
    work_.ops().rms_norm(lat, weights.norm.data(), eps_, lat, dim_);
    rounding_.bf16(lat, dim_);
    work_.expect_finite(lat, dim_);
    activations_.fill_row(i, lat);
    rope.rotate_at(work_.ops(), made.entry * streams.ratio, lat, dim_,
                   angles_.as<float>() + worker * dim_);
    rounding_.bf16(lat, dim_);
    latent_ops_.encode(entry_format_, lat, place(entry_pages_, made, entry_format_.row_bytes()));
  });
  if (work_.found_bad()) return not_finite(where + " compressor");
  kernels::matmul(work_.pool(), activations_,
                  {{.weights = &weights.index_key, .out = keys, .stride = key_dim_}});
  work_.for_rows(made_.size(), 2 * key_dim_, [&](size_t i, size_t worker) {
    const Made& made = made_[i];
    float* key = keys + i * key_dim_;
    rounding_.bf16(key, key_dim_);
    work_.ops().rms_norm(key, weights.index_key_norm.data(), eps_, key, key_dim_);
    rounding_.bf16(key, key_dim_);
    work_.expect_finite(key, key_dim_);
    rope.rotate_at(work_.ops(), made.entry * streams.ratio, key, key_dim_,
                   angles_.as<float>() + worker * dim_);
    rounding_.bf16(key, key_dim_);
    latent_ops_.encode(key_format_, key, place(key_pages_, made, key_format_.row_bytes()));
  });
  if (work_.found_bad()) return not_finite(where + " index key");
  return {};
}

}  // namespace deepinfer::models
