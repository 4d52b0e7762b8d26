#include "models/deepseek_v4/deepseek_v4_pass.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace deepinfer::models {
namespace {

unsigned form_bit(const kernels::PackedMatrix& matrix) {
  return static_cast<unsigned>(matrix.form());
}

double multiply_adds(const kernels::PackedMatrix& matrix, size_t rows) {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(matrix.outputs()) *
         static_cast<double>(matrix.inputs());
}

}  // namespace

Result<std::unique_ptr<V4Pass>> V4Pass::create(const weights::DeepseekV4Config& config,
                                               const ModelOptions& options,
                                               kernels::LatentFormat row, WindowCache& windows,
                                               ThreadPool& pool) {
  RopeRows plain = TRY(RopeRows::create(config.rope, options.max_rows));
  RopeRows compress = TRY(RopeRows::create(config.compress_rope, options.max_rows));
  std::unique_ptr<V4Pass> pass(
      new V4Pass(config, options, row, windows, pool, std::move(plain), std::move(compress)));
  TRY(pass->allocate(options.max_rows));
  return pass;
}

V4Pass::V4Pass(const weights::DeepseekV4Config& config, const ModelOptions& options,
               kernels::LatentFormat row, WindowCache& windows, ThreadPool& pool, RopeRows plain,
               RopeRows compress)
    : config_(config),
      target_(options.target),
      hidden_(config.hidden),
      windows_(windows),
      work_(pool, options.target.isa),
      rounding_(options.target, kV4QuantizerBlock),
      plain_rope_(std::move(plain)),
      compress_rope_(std::move(compress)),
      streams_(config.hyper, config.hidden, config.norm_eps, options.target, rounding_, work_),
      latent_(v4_latent_shape(config, row), options.target, rounding_, work_, profile_),
      entry_maker_(options.target, rounding_, static_cast<float>(config.norm_eps), work_),
      selection_(config.indexer, options.target, rounding_, work_, profile_),
      moe_({.target = options.target, .quantizer_block = rounding_.block()}, pool) {}

Result<void> V4Pass::allocate(size_t max_rows) {
  const size_t threads = work_.pool().thread_count();
  TRY(streams_.create(max_rows));
  TRY(latent_.create(max_rows, threads));
  TRY(selection_.create(max_rows));
  size_t ratio = kOverlapRatio;
  for (const uint32_t of_layer : config_.ratios) ratio = std::max<size_t>(ratio, of_layer);
  entry_maker_.create(threads, ratio, std::max(config_.head_dim, config_.indexer.dim));
  h_ = TRY(Buffer::create(max_rows * hidden_ * sizeof(float)));
  f_ = TRY(Buffer::create(max_rows * hidden_ * sizeof(float)));
  return {};
}

size_t V4Pass::bytes() const {
  return plain_rope_.bytes() + compress_rope_.bytes() + streams_.bytes() + latent_.bytes() +
         selection_.bytes() + moe_.bytes() + h_.size() + f_.size() + windows_.bytes();
}

void V4Pass::begin(std::span<const StepRun> runs, std::span<const uint64_t> positions,
                   std::span<const int32_t> ids) {
  runs_ = runs;
  positions_ = positions;
  ids_ = ids;
  queries_.resize(positions.size());
  plain_rope_.fill(work_, positions);
  compress_rope_.fill(work_, positions);
}

void V4Pass::collapse(const HyperConnection& hyper, const std::vector<float>& norm) {
  const auto timer = profile_.measure(Operation::hyper_connection, hyper.bytes());
  const size_t rows = positions_.size();
  streams_.mix(hyper, rows);
  work_.for_rows(rows, streams_.width(), [&](size_t row, size_t) {
    streams_.collapse(row, streams_.mix_of(row).pre.data(), norm, h(row));
    work_.expect_finite(h(row), hidden_);
  });
}

void V4Pass::expand() {
  const auto timer = profile_.measure(Operation::hyper_connection);
  work_.for_rows(positions_.size(), 2 * streams_.width(), [&](size_t row, size_t) {
    streams_.expand(row, sublayer(row));
    work_.expect_finite(streams_.row(row), streams_.width());
  });
}

// The inputs are refined where products round them to int8, as those of q and kv are.
void V4Pass::compressor_products(const V4Block& block, const V4BlockCache& cache, bool scores) {
  const size_t rows = positions_.size();
  std::vector<kernels::Product> products;
  const auto pending = [&](const V4Compressor& compressor, const V4EntryStream& entries) {
    float* out = reinterpret_cast<float*>(windows_.fresh(entries.ring, 0));
    const size_t stride = 2 * compressor.width();
    products.push_back({.weights = &compressor.kv, .out = out, .stride = stride});
    products.push_back(
        {.weights = &compressor.gate, .out = out + compressor.width(), .stride = stride});
  };
  if (block.compressor) pending(*block.compressor, *cache.entries);
  if (block.indexer) {
    pending(block.indexer->compressor, *cache.index_keys);
    if (scores) {
      products.push_back({.weights = &block.indexer->weights,
                          .out = selection_.weights(),
                          .stride = block.indexer->weights.outputs()});
    }
  }
  unsigned forms = kernels::kRefined;
  size_t bytes = 0;
  double operations = 0;
  for (const kernels::Product& product : products) {
    forms |= form_bit(*product.weights);
    bytes += product.weights->bytes();
    operations += multiply_adds(*product.weights, rows);
  }
  const auto timer = profile_.measure(Operation::compressor, bytes, operations);
  activations_.begin(target_, rows, hidden_, forms);
  work_.for_rows(rows, hidden_, [&](size_t row, size_t) { activations_.fill_row(row, h(row)); });
  kernels::matmul(work_.pool(), activations_, products);
}

Result<void> V4Pass::make_entries(const V4Compressor& compressor, const V4EntryStream& entries,
                                  PageLists& pages, const std::string& where) {
  const auto timer = profile_.measure(Operation::compressor);
  pages.begin(runs_, entries.stream);
  entry_maker_.finish_rows(compressor, windows_, entries.ring, positions_);
  if (work_.found_bad()) return not_finite(where + " kv, gate");
  entry_maker_.make(compressor, windows_, entries.ring, runs_, compress_rope_, pages,
                    entries.store);
  if (work_.found_bad()) return not_finite(where + " entries");
  return {};
}

Result<void> V4Pass::fill_entries(const V4Block& block, const V4BlockCache& cache, bool scores,
                                  const std::string& where) {
  if (!block.compressor) return {};
  compressor_products(block, cache, scores);
  TRY(make_entries(*block.compressor, *cache.entries, entry_pages_, where + " compressor"));
  if (!block.indexer) return {};
  return make_entries(block.indexer->compressor, *cache.index_keys, key_pages_,
                      where + " indexer compressor");
}

Result<void> V4Pass::project_rows(const V4Block& block, const V4BlockCache& cache, bool scores,
                                  const std::string& where) {
  QueryProduct more;
  if (scores) more = {.matrix = &block.indexer->q_b, .out = selection_.queries()};
  return latent_.project(block.attention, rope_of(cache), h_.as<float>(), positions_.size(), more,
                         windows_.fresh(cache.window, 0), where + " attention");
}

Result<void> V4Pass::project(const V4Block& block, const V4BlockCache& cache,
                             const std::string& where) {
  collapse(block.hc_attn, block.attn_norm);
  if (work_.found_bad()) return not_finite(where + " attention hyper-connection");
  return project_rows(block, cache, false, where);
}

Result<void> V4Pass::fill_cache(const V4Block& block, const V4BlockCache& cache,
                                const std::string& where) {
  TRY(project(block, cache, where));
  return fill_entries(block, cache, false, where);
}

void V4Pass::place_queries(const V4BlockCache& cache) {
  for (const StepRun& run : runs_) {
    for (size_t row = run.first_row; row < run.first_row + run.rows; ++row) {
      kernels::LatentQuery query{.query = latent_.query(row), .out = latent_.attended(row)};
      windows_.place(query, cache.window, run, positions_[row], config_.window, run.start.window);
      if (cache.entries) query.pages = entry_pages_.of(run.sequence);
      if (cache.index_keys) {
        query.entry_count = selection_.count(row);
        query.selected = selection_.selected(row);
      } else if (cache.entries) {
        query.entry_count = entries_visible(positions_[row], cache.ratio);
      }
      queries_[row] = query;
    }
  }
}

Result<void> V4Pass::attention(const V4Block& block, const V4BlockCache& cache,
                               const std::string& where, V4BlockTap* tap) {
  collapse(block.hc_attn, block.attn_norm);
  if (work_.found_bad()) return not_finite(where + " attention hyper-connection");
  if (tap != nullptr) tap_rows(tap->attn_in, h_);
  const bool scores = block.indexer.has_value() && selection_.begin(positions_);
  TRY(project_rows(block, cache, scores, where));
  TRY(fill_entries(block, cache, scores, where));
  if (scores) {
    TRY(selection_.choose(runs_, positions_, compress_rope_, key_pages_, cache.index_keys->store,
                          where));
  }
  place_queries(cache);
  const EntryStore store = cache.entries ? cache.entries->store : EntryStore{};
  TRY(latent_.attend(block.attention, rope_of(cache), queries_, store.format, store.per_page,
                     f_.as<float>(), where + " attention"));
  if (tap != nullptr) {
    tap_rows(tap->attn_out, f_);
    tap->selected.assign(positions_.size(), {});
    for (size_t row = 0; block.indexer && row < positions_.size(); ++row) {
      for (size_t i = 0; i < selection_.count(row); ++i) {
        const uint32_t* selected = selection_.selected(row);
        tap->selected[row].push_back(selected ? selected[i] : static_cast<uint32_t>(i));
      }
    }
  }
  expand();
  if (work_.found_bad()) return not_finite(where + " attention output");
  return {};
}

Result<void> V4Pass::attend(const V4Block& block, std::span<kernels::LatentQuery> queries,
                            const std::string& where) {
  check(queries.size() == positions_.size(), "queries of the rows");
  for (size_t row = 0; row < queries.size(); ++row) {
    queries[row].query = latent_.query(row);
    queries[row].out = latent_.attended(row);
  }
  TRY(latent_.attend(block.attention, plain_rope_, queries, {}, 0, f_.as<float>(),
                     where + " attention"));
  expand();
  if (work_.found_bad()) return not_finite(where + " attention output");
  return {};
}

Result<void> V4Pass::experts(const V4Block& block, ExpertSource& source, const std::string& where,
                             V4BlockTap* tap) {
  const size_t rows = positions_.size();
  collapse(block.hc_ffn, block.ffn_norm);
  if (work_.found_bad()) return not_finite(where + " ffn hyper-connection");
  if (tap != nullptr) tap_rows(tap->ffn_in, h_);
  TRY(moe_.forward(block.moe, source, {h_.as<float>(), rows * hidden_}, rows, ids_, {},
                   f_.as<float>(), where, profile_, tap != nullptr ? &tap->routing : nullptr));
  if (tap != nullptr) tap_rows(tap->ffn_out, f_);
  expand();
  if (work_.found_bad()) return not_finite(where + " ffn output");
  if (tap != nullptr) {
    tap->streams.assign(streams_.row(0), streams_.row(0) + rows * streams_.width());
  }
  return {};
}

Result<void> V4Pass::logits(const HyperConnection& head, const std::vector<float>& norm,
                            const kernels::PackedMatrix& output, std::span<const size_t> wanted,
                            float* out, float* collapsed) {
  const size_t rows = wanted.size(), vocab = output.outputs();
  for (size_t i = 0; i < rows; ++i) streams_.move(wanted[i], i);
  streams_.mix(head, rows);
  activations_.begin(target_, rows, hidden_, form_bit(output) | kernels::kRefined);
  {
    const auto timer = profile_.measure(Operation::hyper_connection, head.bytes());
    work_.for_rows(rows, streams_.width(), [&](size_t row, size_t) {
      const float* pre = streams_.mix_of(row).pre.data();
      if (collapsed != nullptr) {
        streams_.gather(row, pre, collapsed + row * hidden_);
      }
      streams_.collapse(row, pre, norm, h(row));
      work_.expect_finite(h(row), hidden_);
      activations_.fill_row(row, h(row));
    });
  }
  if (work_.found_bad()) return not_finite("head hyper-connection");
  const auto timer =
      profile_.measure(Operation::logits, output.bytes(), multiply_adds(output, rows));
  kernels::matmul(work_.pool(), activations_, {{.weights = &output, .out = out, .stride = vocab}});
  work_.for_rows(rows, vocab,
                 [&](size_t row, size_t) { work_.expect_finite(out + row * vocab, vocab); });
  if (work_.found_bad()) return not_finite("output head");
  return {};
}

void V4Pass::tap_rows(std::vector<float>& to, const Buffer& from) const {
  to.assign(from.as<float>(), from.as<float>() + positions_.size() * hidden_);
}

}  // namespace deepinfer::models
