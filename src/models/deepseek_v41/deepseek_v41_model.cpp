#include "models/deepseek_v41/deepseek_v41_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "models/deepseek_v41/deepseek_v41_draft.h"

namespace deepinfer::models {
namespace {

constexpr uint32_t kQuantizerBlock = 32;

}  // namespace

DeepseekV41::DeepseekV41(weights::DeepseekV41Config config, const ModelOptions& options,
                         ThreadPool& pool, DeepseekV41Weights weights)
    : config_(std::move(config)),
      options_(options),
      work_(pool, options.target.isa),
      rounding_(options.target, kQuantizerBlock),
      decoder_(config_.first_decoder_layer()),
      weights_(std::move(weights)),
      windows_(spare_rows(config_.dspark)),
      streams_(config_.hyper, config_.hidden, config_.norm_eps, options.target, rounding_, work_),
      block_(v41_block_shape(config_, options.kv), options.target, rounding_, work_, profile_),
      entries_(config_, options.kv, options.target, rounding_, work_, profile_),
      selection_(config_, entries_.key_format(), options.target, rounding_, work_, profile_),
      moe_({.target = options.target, .quantizer_block = rounding_.block()}, pool) {}

Result<void> DeepseekV41::create(std::optional<EngramHash> hash) {
  const size_t rows = options_.max_rows, threads = work_.pool().thread_count();
  V41CachePlan plan = plan_v41_cache(config_, options_.kv, windows_);
  layout_ = std::move(plan.layout);
  window_rings_ = std::move(plan.windows);
  drafter_rings_ = std::move(plan.drafters);
  if (plan.engram) {
    engram_stream_ = *plan.engram;
    engram_.emplace(std::move(*hash), config_, options_.target, rounding_, work_, profile_);
    TRY(engram_->create(rows, threads, std::move(weights_.engram_reader)));
  }
  rope_.emplace(TRY(RopeRows::create(config_.rope, rows)));
  compress_rope_.emplace(TRY(RopeRows::create(config_.compress_rope, rows)));
  TRY(windows_.create(rows));
  TRY(streams_.create(rows));
  TRY(block_.create(rows, threads));
  TRY(entries_.create(std::move(plan.sources), rows, threads));
  TRY(selection_.create(rows));
  hidden_ = TRY(Buffer::create(rows * config_.hidden * sizeof(float)));
  out_ = TRY(Buffer::create(rows * config_.hidden * sizeof(float)));
  pre_.resize(rows * streams_.count());
  return {};
}

size_t DeepseekV41::resident_bytes() const {
  return weights_.resident + windows_.bytes() + streams_.bytes() + block_.bytes() +
         entries_.bytes() + selection_.bytes() + hidden_.size() + out_.size() + moe_.bytes() +
         rope_->bytes() + compress_rope_->bytes() + (engram_ ? engram_->bytes() : 0);
}

StreamCounters DeepseekV41::stream_counters() const {
  StreamCounters counters = weights_.experts->counters();
  if (engram_ && options_.stream_bytes != 0) counters.bytes_read += engram_->bytes_read();
  return counters;
}

Result<void> DeepseekV41::embed(const StepBatch& batch) {
  const auto timer = profile_.measure(Operation::embedding);
  const size_t rows = batch.ids.size(), hidden = config_.hidden, streams = streams_.count();
  ids_.assign(batch.ids.begin(), batch.ids.end());
  image_.assign(rows, 0);
  wanted_.assign(batch.want_logits.begin(), batch.want_logits.end());
  positions_.assign(batch.positions.begin(), batch.positions.end());
  for (size_t row = 0; row < rows; ++row) {
    const bool given = !batch.embeddings.empty() && batch.embeddings[row] != nullptr;
    check(given || (ids_[row] >= 0 && static_cast<uint32_t>(ids_[row]) < config_.vocab),
          "id outside the vocabulary");
    if (given) ids_[row] = 0;
    const bool token =
        config_.image_token && !given && static_cast<uint32_t>(ids_[row]) == *config_.image_token;
    image_[row] = given || token ? 1 : 0;
  }
  work_.for_rows(rows, hidden * streams, [&](size_t row, size_t) {
    float* values = hidden_.as<float>() + row * hidden;
    if (!batch.embeddings.empty() && batch.embeddings[row] != nullptr) {
      std::memcpy(values, batch.embeddings[row], hidden * sizeof(float));
      rounding_.bf16(values, hidden);
    } else {
      decode_row(weights_.embedding.dtype, weights_.embedding.row(static_cast<size_t>(ids_[row])),
                 values, hidden);
    }
    work_.expect_finite(values, hidden);
    streams_.set(row, values);
    for (size_t j = 0; j < streams; ++j) pre_[row * streams + j] = j == 0 ? 1.0f : 0.0f;
  });
  if (work_.found_bad()) return not_finite("embedding");
  return {};
}

void DeepseekV41::fill_positions() {
  const auto timer = profile_.measure(Operation::rope);
  rope_->fill(work_, positions_);
  compress_rope_->fill(work_, positions_);
}

// hidden_ = rms_norm of all rows collapsed with the last pre.
void DeepseekV41::collapse_all(const std::vector<float>& norm) {
  const auto timer = profile_.measure(Operation::hyper_connection);
  const size_t n = streams_.count();
  work_.for_rows(positions_.size(), n * config_.hidden, [&](size_t row, size_t) {
    streams_.collapse(row, pre_.data() + row * n, norm, hidden_.as<float>() + row * config_.hidden);
  });
}

Result<void> DeepseekV41::select_entries(size_t layer, const RopeRows& rope) {
  const V41EntryStreams& streams =
      entries_.streams(config_.kv_source_of(static_cast<uint32_t>(layer)));
  return selection_.select(layer, *weights_.layers[layer].indexer, streams, hidden_.as<float>(),
                           runs_, rope, in_layer(layer, "indexer"));
}

Result<void> DeepseekV41::attend(size_t layer, const RopeRows& rope) {
  const bool global = config_.ratios[layer] != 0;
  size_t per_page = 1;
  if (global) {
    const V41EntryStreams& streams =
        entries_.streams(config_.kv_source_of(static_cast<uint32_t>(layer)));
    entry_pages_.begin(runs_, streams.entries);
    per_page = streams.per_page;
  }
  queries_.assign(positions_.size(), {});
  for (const StepRun& run : runs_) {
    const uint64_t first =
        layer < decoder_ ? run.start.window : std::max(run.start.window, run.start.decoder);
    for (size_t i = 0; i < run.rows; ++i) {
      const size_t row = run.first_row + i;
      kernels::LatentQuery& query = queries_[row];
      query.query = block_.query(row);
      query.out = block_.attended(row);
      windows_.place(query, window_rings_[layer], run, run.first_position + i, config_.window,
                     first);
      if (!global) continue;
      query.pages = entry_pages_.of(run.sequence);
      query.selected = selection_.selected(row);
      query.entry_count = selection_.count(row);
    }
  }
  return block_.attend(weights_.layers[layer].attention, rope, queries_, entries_.entry_format(),
                       per_page, out_.as<float>(), in_layer(layer, "attention"));
}

Result<void> DeepseekV41::attention_part(size_t layer, bool shared_done) {
  const V41Layer& w = weights_.layers[layer];
  const size_t rows = positions_.size();
  const uint32_t ratio = config_.ratios[layer];
  const RopeRows& rope = ratio == 0 ? *rope_ : *compress_rope_;
  collapse_all(w.attn_norm);
  {
    const auto timer = profile_.measure(Operation::hyper_connection);
    streams_.mix(w.hc_attn, rows);
  }
  QueryProduct indexer;
  if (w.indexer && selection_.needs_scores(layer, ratio, runs_)) {
    indexer = {.matrix = &w.indexer->q_b, .out = selection_.queries()};
  }
  TRY(block_.project(w.attention, rope, hidden_.as<float>(), rows, indexer,
                     windows_.fresh(window_rings_[layer], 0), in_layer(layer, "attention")));
  if (w.compressor && !shared_done) {
    TRY(entries_.update(config_.kv_source_of(static_cast<uint32_t>(layer)), *w.compressor,
                        hidden_.as<float>(), runs_, windows_, rope, in_layer(layer, "attention")));
  }
  if (w.indexer) TRY(select_entries(layer, rope));
  TRY(attend(layer, rope));
  return finish_attention(w, in_layer(layer, "attention output"));
}

Result<void> DeepseekV41::finish_attention(const V41Layer& w, const std::string& where) {
  const size_t rows = positions_.size(), n = streams_.count();
  const auto timer = profile_.measure(Operation::hyper_connection);
  work_.for_rows(rows, n * config_.hidden, [&](size_t row, size_t) {
    float* out = out_.as<float>() + row * config_.hidden;
    const kernels::HyperMix& mix = streams_.mix_of(row);
    std::copy_n(mix.pre.begin(), n, pre_.begin() + static_cast<std::ptrdiff_t>(row * n));
    streams_.expand(row, out);
    work_.expect_finite(out, config_.hidden);
    streams_.collapse(row, pre_.data() + row * n, w.ffn_norm,
                      hidden_.as<float>() + row * config_.hidden);
  });
  if (work_.found_bad()) return not_finite(where);
  return {};
}

// hidden_ holds the normed input.
Result<void> DeepseekV41::ffn_part(const V41Layer& w, const std::string& where) {
  const size_t rows = positions_.size(), n = streams_.count();
  {
    const auto timer = profile_.measure(Operation::hyper_connection);
    streams_.mix(w.hc_ffn, rows);
  }
  TRY(moe_.forward(w.moe, *weights_.experts,
                   std::span<const float>(hidden_.as<float>(), rows * config_.hidden), rows, ids_,
                   image_, out_.as<float>(), where + " ffn", profile_,
                   observer_ ? &routing_ : nullptr));
  const auto timer = profile_.measure(Operation::hyper_connection);
  work_.for_rows(rows, n * config_.hidden, [&](size_t row, size_t) {
    const kernels::HyperMix& mix = streams_.mix_of(row);
    std::copy_n(mix.pre.begin(), n, pre_.begin() + static_cast<std::ptrdiff_t>(row * n));
    streams_.expand(row, out_.as<float>() + row * config_.hidden);
    work_.expect_finite(streams_.row(row), n * config_.hidden);
  });
  if (work_.found_bad()) return not_finite(where + " residual");
  return {};
}

void DeepseekV41::show(size_t layer, bool after) {
  if (!observer_) return;
  observer_({.layer = layer,
             .after = after,
             .rows = positions_.size(),
             .streams = &streams_,
             .pre = pre_.data(),
             .selection = &selection_,
             .runs = runs_,
             .attention_out = after ? attended_.as<float>() : nullptr,
             .ffn_out = after ? out_.as<float>() : nullptr,
             .routing = after ? &routing_ : nullptr});
}

Result<void> DeepseekV41::run_layer(size_t layer, bool shared_done) {
  show(layer, false);
  TRY(attention_part(layer, shared_done));
  if (observer_) {
    if (attended_.size() == 0) attended_ = TRY(Buffer::create(out_.size()));
    std::memcpy(attended_.data(), out_.data(), positions_.size() * config_.hidden * sizeof(float));
  }
  TRY(ffn_part(weights_.layers[layer], "layer " + std::to_string(layer)));
  show(layer, true);
  return {};
}

bool DeepseekV41::starts_from_tail(std::span<const StepRun> runs) const {
  return std::any_of(runs.begin(), runs.end(),
                     [](const StepRun& run) { return run.first_position < run.start.decoder; });
}

// Every row's part of the decoder's one cache, from the first decoder layer's input.
Result<void> DeepseekV41::feed_shared_cache() {
  const V41Layer& w = weights_.layers[decoder_];
  collapse_all(w.attn_norm);
  return entries_.update(config_.kv_source_of(static_cast<uint32_t>(decoder_)), *w.compressor,
                         hidden_.as<float>(), runs_, windows_, *compress_rope_,
                         in_layer(decoder_, "attention"));
}

// Rows below SequenceStart::decoder are done: the others close up.
void DeepseekV41::keep_decoder_rows() {
  const size_t n = streams_.count();
  std::vector<StepRun> kept;
  size_t to = 0;
  for (StepRun run : step_runs_) {
    const uint64_t skipped = std::min<uint64_t>(
        run.rows,
        run.start.decoder > run.first_position ? run.start.decoder - run.first_position : 0);
    const size_t from = run.first_row + static_cast<size_t>(skipped);
    run.first_row = to;
    run.rows -= static_cast<size_t>(skipped);
    run.first_position += skipped;
    if (run.rows == 0) continue;
    for (size_t i = 0; i < run.rows; ++i, ++to) {
      streams_.move(from + i, to);
      std::copy_n(pre_.begin() + static_cast<std::ptrdiff_t>((from + i) * n), n,
                  pre_.begin() + static_cast<std::ptrdiff_t>(to * n));
      positions_[to] = positions_[from + i];
      ids_[to] = ids_[from + i];
      image_[to] = image_[from + i];
      wanted_[to] = wanted_[from + i];
    }
    kept.push_back(run);
  }
  positions_.resize(to);
  ids_.resize(to);
  image_.resize(to);
  wanted_.resize(to);
  runs_ = std::move(kept);
}

Result<void> DeepseekV41::logits(StepOutput& output) {
  const size_t hidden = config_.hidden, vocab = config_.vocab, n = streams_.count();
  std::vector<size_t> rows;
  for (size_t row = 0; row < wanted_.size(); ++row) {
    if (wanted_[row] != 0) rows.push_back(row);
  }
  if (rows.empty()) return {};
  const size_t bytes = rows.size() * vocab * sizeof(float);
  if (output.logits.size() < bytes) {
    output.logits = Buffer();  // gives the old one back first
    output.logits = TRY(Buffer::create(bytes));
  }
  head_.begin(options_.target, rows.size(), hidden, weights_.output.form() | kernels::kRefined);
  work_.for_rows(rows.size(), n * hidden, [&](size_t i, size_t) {
    float* x = hidden_.as<float>() + i * hidden;
    streams_.collapse(rows[i], pre_.data() + rows[i] * n, weights_.norm, x);
    head_.fill_row(i, x);
  });
  float* out = output.logits.as<float>();
  {
    const auto timer = profile_.measure(Operation::logits, weights_.output.bytes(),
                                        2.0 * static_cast<double>(rows.size() * vocab * hidden));
    kernels::matmul(work_.pool(), head_,
                    {{.weights = &weights_.output, .out = out, .stride = vocab}});
  }
  work_.for_rows(rows.size(), vocab,
                 [&](size_t row, size_t) { work_.expect_finite(out + row * vocab, vocab); });
  if (work_.found_bad()) return not_finite("output head");
  output.wanted_rows = rows.size();
  return {};
}

void DeepseekV41::commit() {
  for (size_t i = 0; i < config_.kv_sources.size(); ++i) {
    if (const auto& pending = entries_.streams(i).pending) windows_.commit(*pending, step_runs_);
  }
  for (size_t layer = 0; layer < window_rings_.size(); ++layer) {
    windows_.commit(window_rings_[layer], layer < decoder_ ? step_runs_ : runs_);
  }
  if (drafter_ == nullptr) return;
  for (const size_t ring : drafter_rings_) windows_.commit(ring, runs_);
}

Result<void> DeepseekV41::forward(const StepBatch& batch, StepOutput& output) {
  output.wanted_rows = 0;
  step_runs_ = step_runs(batch, options_.max_rows);
  runs_ = step_runs_;
  TRY(embed(batch));
  fill_positions();
  if (engram_) engram_->remember(runs_, ids_, image_, engram_stream_);
  bool shared_done = false;
  for (size_t layer = 0; layer < weights_.layers.size(); ++layer) {
    if (const auto& engram = weights_.layers[layer].engram) {
      TRY(engram_->apply(*engram, runs_, image_, streams_, in_layer(layer, "engram")));
    }
    if (layer == decoder_ && starts_from_tail(runs_)) {
      TRY(feed_shared_cache());
      shared_done = true;
      keep_decoder_rows();
      if (runs_.empty()) break;
      fill_positions();
    }
    if (drafter_ != nullptr) drafter_->tap(layer);
    TRY(run_layer(layer, shared_done && layer == decoder_));
  }
  if (drafter_ != nullptr && !runs_.empty()) TRY(drafter_->feed());
  if (!runs_.empty()) TRY(logits(output));
  commit();
  return {};
}

}  // namespace deepinfer::models
