#include "models/plan/step_work.h"

#include <algorithm>
#include <cmath>
#include <variant>

namespace deepinfer::models {
namespace {

using weights::DeepseekV3Config;
using weights::DeepseekV41Config;
using weights::DeepseekV4Config;
using weights::LlamaConfig;
using weights::MatrixStorage;

// F(n, r) of the spec: sum over t in 1 .. n of floor(t / r).
double floor_sum(uint64_t n, uint64_t ratio) {
  const double r = static_cast<double>(ratio);
  const uint64_t groups = n / ratio;
  const auto whole = static_cast<double>(groups);
  return whole * (static_cast<double>(n) + 1) - r * whole * (whole + 1) / 2;
}

// C(n, r, c): sum over t in 1 .. n of min(floor(t / r), c).
double capped_sum(uint64_t n, uint64_t ratio, uint64_t most) {
  const uint64_t until = ratio * most;
  const double beyond = n > until ? static_cast<double>(n - until) : 0;
  return floor_sum(std::min(n, until), ratio) + beyond * static_cast<double>(most);
}

// G(n): sum over t in 1 .. n of min(t, w).
double window_sum(uint64_t n, uint64_t window) { return capped_sum(n, 1, window); }

// Where the formats of a family decide which multiply-adds count as what.
class Products {
 public:
  Products(bool fp8_matrices, StepWork& work) : matrix_(fp8_matrices ? work.fp8 : work.bf16) {}
  void add(double multiply_adds) { matrix_ += multiply_adds; }

 private:
  double& matrix_;
};

double gated(double hidden, double width) { return 3 * hidden * width; }

double experts_of_row(const weights::MoeConfig& moe, double hidden) {
  return gated(hidden, moe.width) * moe.per_token +
         (moe.shared > 0 ? gated(hidden, moe.shared_width) : 0);
}

// --- Dense models ------------------------------------------------------------------------------

void add_rows(const LlamaConfig& config, const RowRange& range, StepWork& work) {
  const double hidden = config.hidden, dim = config.head_dim;
  const double heads = config.heads, kv_heads = config.kv_heads;
  const double matrices =
      hidden * dim * (2 * heads + 2 * kv_heads) + gated(hidden, config.intermediate);
  const double pairs = compressed_pairs(range.first, range.first + range.rows, 1);
  work.bf16 +=
      config.layers * (matrices * static_cast<double>(range.rows) + 2 * heads * dim * pairs);
  work.bf16 += hidden * config.vocab * static_cast<double>(range.logits_rows);
}

// --- V3 ------------------------------------------------------------------------------------------

// Latent attention with the up-projections absorbed, as it runs at every length.
double latent_matrices(const DeepseekV3Config& config) {
  const double hidden = config.hidden, heads = config.heads, latent = config.kv_lora;
  const double query = static_cast<double>(config.nope_dim) + config.rope_dim;
  const double queries =
      config.q_lora > 0 ? config.q_lora * (hidden + heads * query) : hidden * heads * query;
  return queries + hidden * (latent + config.rope_dim) + heads * latent * config.nope_dim +
         heads * latent * config.value_dim + heads * config.value_dim * hidden;
}

void add_rows(const DeepseekV3Config& config, const RowRange& range, StepWork& work) {
  Products products(config.quantization.matrices != MatrixStorage::plain, work);
  const uint64_t end = range.first + range.rows;
  const double rows = static_cast<double>(range.rows);
  const double hidden = config.hidden, layers = config.layers;
  products.add(layers * rows * latent_matrices(config));
  double pairs = compressed_pairs(range.first, end, 1);
  if (config.index_topk > 0) {
    const double index = static_cast<double>(config.index_heads) * config.index_dim;
    products.add(layers * rows * (config.q_lora * index + hidden * config.index_dim));
    work.bf16 += layers * rows * hidden * config.index_heads;
    work.fp8 += layers * index * pairs;
    pairs = capped_pairs(range.first, end, 1, config.index_topk);
  }
  const double width = 2.0 * config.kv_lora + config.rope_dim;
  work.bf16 += layers * config.heads * width * pairs;
  products.add(rows * config.dense_layers * gated(hidden, config.dense_width));
  const double sparse = layers - config.dense_layers;
  products.add(rows * sparse * experts_of_row(config.moe, hidden));
  work.bf16 += rows * sparse * hidden * config.moe.experts;
  work.bf16 += hidden * config.vocab * static_cast<double>(range.logits_rows);
}

// --- V4 and V4.1 ---------------------------------------------------------------------------------

// Queries, window rows and the output of one attention layer, of one row.
template <class Config>
void add_attention_matrices(const Config& config, double rows, bool owns_index, StepWork& work) {
  Products products(config.quantization.matrices != MatrixStorage::plain, work);
  const double hidden = config.hidden, rank = config.q_lora, dim = config.head_dim;
  const double values = static_cast<double>(config.heads) * dim;
  const double index =
      owns_index ? static_cast<double>(config.indexer.heads) * config.indexer.dim : 0;
  products.add(rows * hidden * (rank + dim));
  products.add(rows * rank * (values + index));
  work.fp8 += rows * values * config.o_lora;
  products.add(rows * static_cast<double>(config.o_groups) * config.o_lora * hidden);
  if (owns_index) work.bf16 += rows * hidden * config.indexer.heads;
}

// Two a layer: scores of queries and keys, and their values.
template <class Config>
void add_pairs(const Config& config, double pairs, StepWork& work) {
  work.bf16 += 2 * static_cast<double>(config.heads) * config.head_dim * pairs;
}

// mixes: matrices of streams by the streams' products with the function of all of them.
double hyper_of_sublayer(double streams, double hidden) {
  return streams * streams * (streams + 2) * hidden + streams * hidden +
         streams * (streams + 1) * hidden;
}

template <class Config>
void add_experts(const Config& config, double rows, StepWork& work) {
  Products products(config.quantization.matrices != MatrixStorage::plain, work);
  products.add(rows * experts_of_row(config.moe, config.hidden));
  work.bf16 += rows * static_cast<double>(config.hidden) * config.moe.experts;
  work.f32 += rows * 2 * hyper_of_sublayer(config.hyper.streams, config.hidden);
}

void add_rows(const DeepseekV4Config& config, const RowRange& range, StepWork& work) {
  const uint64_t end = range.first + range.rows;
  const double rows = static_cast<double>(range.rows), hidden = config.hidden;
  const double streams = config.hyper.streams;
  for (const uint32_t ratio : config.ratios) {
    const bool indexed = ratio == 4;
    add_attention_matrices(config, rows, indexed, work);
    add_pairs(config, window_pairs(range.first, end, range.start.window, config.window), work);
    if (ratio != 0) {
      work.bf16 += rows * hidden * config.head_dim * (indexed ? 4 : 2);
      const double pairs = indexed ? capped_pairs(range.first, end, ratio, config.indexer.topk)
                                   : compressed_pairs(range.first, end, ratio);
      add_pairs(config, pairs, work);
    }
    if (indexed) {
      work.bf16 += rows * hidden * config.indexer.dim * 4;
      work.fp4 += static_cast<double>(config.indexer.heads) * config.indexer.dim *
                  compressed_pairs(range.first, end, ratio);
    }
    add_experts(config, rows, work);
  }
  work.f32 += rows * (streams * hidden + streams * streams * hidden);
  work.bf16 += hidden * config.vocab * static_cast<double>(range.logits_rows);
}

// Rows whose index keys are new.
double index_key_rows(const RowRange& range, uint64_t ratio) {
  if (range.decodes) return static_cast<double>(range.rows);
  const uint64_t end = range.first + range.rows;
  return static_cast<double>(std::max<uint64_t>(1, end / ratio - range.first / ratio));
}

void add_entries(const DeepseekV41Config& config, uint32_t layer, const RowRange& range,
                 StepWork& work) {
  if (!std::ranges::binary_search(config.kv_sources, layer)) return;
  const uint32_t ratio = config.ratios[layer];
  work.bf16 +=
      static_cast<double>(range.rows) * config.hidden * config.head_dim * (ratio == 1 ? 1 : 2);
  work.bf16 +=
      static_cast<double>(config.head_dim) * config.indexer.dim * index_key_rows(range, ratio);
}

void add_indexer(const DeepseekV41Config& config, uint32_t layer, uint64_t first, uint64_t end,
                 StepWork& work) {
  const uint64_t ratio = config.ratios[layer];
  const bool candidates = config.candidate_source && layer > *config.candidate_source;
  const double pairs = candidates ? candidate_pairs(first, end, ratio, config.candidate_block,
                                                    config.candidate_blocks)
                                  : compressed_pairs(first, end, ratio);
  work.fp4 += static_cast<double>(config.indexer.heads) * config.indexer.dim * pairs;
}

void add_rows(const DeepseekV41Config& config, const RowRange& range, StepWork& work) {
  const uint64_t end = range.first + range.rows;
  const uint64_t consumer = std::clamp(range.start.decoder, range.first, end);
  const double hidden = config.hidden, streams = config.hyper.streams;
  const double consumer_rows = static_cast<double>(end - consumer);
  for (uint32_t layer = 0; layer < config.layers; ++layer) {
    const bool decoder = layer >= config.first_decoder_layer();
    const uint64_t first = decoder ? consumer : range.first;
    const double rows = static_cast<double>(end - first);
    const uint64_t window =
        decoder ? std::max(range.start.window, range.start.decoder) : range.start.window;
    const bool indexed = std::ranges::binary_search(config.index_sources, layer);
    add_entries(config, layer, range, work);
    if (first == end) continue;
    add_attention_matrices(config, rows, indexed, work);
    add_pairs(config, window_pairs(first, end, std::min(window, first), config.window), work);
    if (config.ratios[layer] != 0) {
      add_pairs(config, capped_pairs(first, end, config.ratios[layer], config.indexer.topk), work);
      if (indexed) add_indexer(config, layer, first, end, work);
    }
    add_experts(config, rows, work);
  }
  // The first mix of the lagged connections is no mix; the last one reads the streams once more.
  work.f32 -= static_cast<double>(range.rows) * streams * hidden;
  work.f32 += consumer_rows * streams * hidden;
  const weights::EngramConfig& engram = config.engram;
  const double width =
      engram.layers.empty() ? 0 : (engram.max_ngram - 1.0) * engram.heads * engram.head_dim;
  for (const uint32_t layer : engram.layers) {
    const double rows =
        layer >= config.first_decoder_layer() ? consumer_rows : static_cast<double>(range.rows);
    Products products(config.quantization.matrices != MatrixStorage::plain, work);
    products.add(rows * width * hidden * (streams + 1));
    work.f32 += rows * streams * hidden;
  }
  work.bf16 += hidden * config.vocab * static_cast<double>(range.logits_rows);
}

}  // namespace

double compressed_pairs(uint64_t a, uint64_t b, uint64_t ratio) {
  return floor_sum(b, ratio) - floor_sum(a, ratio);
}

double capped_pairs(uint64_t a, uint64_t b, uint64_t ratio, uint64_t most) {
  return capped_sum(b, ratio, most) - capped_sum(a, ratio, most);
}

double window_pairs(uint64_t a, uint64_t b, uint64_t start, uint64_t window) {
  check(start <= a, "a window that begins after its query");
  return window_sum(b - start, window) - window_sum(a - start, window);
}

// Each block is as long as `block` keys, so a query that sees t tokens has
// floor((t + ratio * (block - 1)) / (ratio * block)) of them.
double candidate_pairs(uint64_t a, uint64_t b, uint64_t ratio, uint64_t block, uint64_t most) {
  const uint64_t shift = ratio * (block - 1);
  return static_cast<double>(block) *
         (capped_sum(b + shift, ratio * block, most) - capped_sum(a + shift, ratio * block, most));
}

double experts_touched(double experts, double per_token, double rows) {
  if (experts <= 0) return 0;
  return experts * (1 - std::pow(1 - per_token / experts, rows));
}

void StepEstimator::add(const RowRange& range, StepWork& work) const {
  std::visit([&](const auto& config) { add_rows(config, range, work); }, config_);
}

StepWork StepEstimator::prompt(uint64_t tokens, uint64_t chunk) const {
  check(chunk > 0, "chunks of nothing");
  StepWork work;
  for (uint64_t first = 0; first < tokens; first += chunk) {
    const uint64_t rows = std::min(chunk, tokens - first);
    add({.first = first, .rows = rows, .logits_rows = first + rows == tokens ? 1u : 0u}, work);
  }
  return work;
}

StepWork StepEstimator::token(uint64_t context) const {
  StepWork work;
  add({.first = context, .rows = 1, .logits_rows = 1, .decodes = true}, work);
  return work;
}

}  // namespace deepinfer::models
