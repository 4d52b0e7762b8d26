#include "models/vision/vision_encoder.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "kernels/row_ops.h"

namespace deepinfer::models {
namespace {

// Rows that go through a product together: few enough that the rows of all its inputs and outputs
// stay small, enough that weights are read seldom.
constexpr size_t kTileRows = 512;
constexpr float kNormEps = 1e-6f;

// x Phi(x) with the exact error function.
float gelu(float value) {
  const double v = static_cast<double>(value);
  return static_cast<float>(0.5 * v * (1.0 + std::erf(v * 0.70710678118654752440)));
}

Result<void> grow(Buffer& buffer, size_t bytes) {
  if (buffer.size() >= bytes) return {};
  buffer = Buffer();
  buffer = TRY(Buffer::create(bytes));
  return {};
}

}  // namespace

template <class Visit>
void VisionEncoder::for_tiles(size_t rows, Visit visit) {
  for (size_t first = 0; first < rows; first += kTileRows) {
    visit(first, std::min(kTileRows, rows - first));
  }
}

Result<std::unique_ptr<VisionEncoder>> VisionEncoder::create(
    const weights::VisionTensors& tensors, const weights::VisionConfig& config,
    uint32_t text_hidden, kernels::Target target, ThreadPool& pool, const Progress& progress) {
  // One table serves both axes: a quarter of a head's values are angles of the row, a quarter of
  // the column.
  kernels::RopeTable rope = TRY(kernels::RopeTable::create(
      {.theta = config.rope_theta, .dims = config.hidden / config.heads / 2}));
  VisionWeights loaded = TRY(load_vision_weights(tensors, target, pool, progress));
  return std::unique_ptr<VisionEncoder>(
      new VisionEncoder(config, text_hidden, target, pool, std::move(loaded), std::move(rope)));
}

VisionEncoder::VisionEncoder(const weights::VisionConfig& config, uint32_t text_hidden,
                             kernels::Target target, ThreadPool& pool, VisionWeights weights,
                             kernels::RopeTable rope)
    : config_(config),
      text_hidden_(text_hidden),
      width_(config.hidden),
      head_dim_(config.hidden / config.heads),
      merged_(size_t{config.hidden} * config.downsample * config.downsample),
      target_(target),
      work_(pool, target.isa),
      rounding_(target, 32),
      weights_(std::move(weights)),
      rope_(std::move(rope)) {
  attention_ = {.heads = config.heads,
                .kv_heads = config.heads,
                .head_dim = head_dim_,
                .form = rounding_.on() ? kernels::KvForm::bf16 : kernels::KvForm::f32,
                .scale = 1.0f / std::sqrt(static_cast<float>(head_dim_)),
                .bf16_weights = rounding_.on()};
  scratch_stride_ = (std::max({weights_.patch.inputs(), width_, merged_}) + 15) / 16 * 16;
  scratch_.resize(pool.thread_count() * scratch_stride_);
}

size_t VisionEncoder::lines(const PatchGrid& grid) const {
  return (size_t{grid.rows} + config_.downsample - 1) / config_.downsample;
}
size_t VisionEncoder::line_cells(const PatchGrid& grid) const {
  return (size_t{grid.columns} + config_.downsample - 1) / config_.downsample;
}
size_t VisionEncoder::cells(const PatchGrid& grid) const { return lines(grid) * line_cells(grid); }

size_t VisionEncoder::resident_bytes() const {
  return weights_.arena.bytes() + x_.size() + qkv_.size() + pages_.size() + tile_.size();
}

Result<void> VisionEncoder::check_grid(const PatchGrid& grid) const {
  if (grid.rows == 0 || grid.columns == 0) return Error::invalid("image", "has no patches");
  const size_t tokens = lines(grid) * (line_cells(grid) + 1) + 2;
  if (tokens > config_.max_image_tokens) {
    return Error::invalid("image", std::to_string(grid.columns) + "x" + std::to_string(grid.rows) +
                                       " patches take " + std::to_string(tokens) +
                                       " tokens, max_image_tokens is " +
                                       std::to_string(config_.max_image_tokens));
  }
  const size_t expected = grid.count() * weights_.patch.inputs();
  if (grid.patches.size() != expected) {
    return Error::invalid("image", "has " + std::to_string(grid.patches.size()) +
                                       " patch values, its grid says " + std::to_string(expected));
  }
  return {};
}

Result<void> VisionEncoder::reserve(const PatchGrid& grid) {
  const size_t patches = grid.count();
  const size_t pages = (patches + kernels::kPageTokens - 1) / kernels::kPageTokens;
  const size_t widest = std::max({2 * size_t{config_.intermediate}, width_, text_hidden_});
  TRY(grow(x_, patches * width_ * sizeof(float)));
  TRY(grow(qkv_, patches * 3 * width_ * sizeof(float)));
  TRY(grow(pages_, pages * attention_.page_bytes()));
  TRY(grow(tile_, kTileRows * widest * sizeof(float)));
  page_pointers_.resize(pages);
  for (size_t i = 0; i < pages; ++i) {
    page_pointers_[i] = pages_.data() + i * attention_.page_bytes();
  }
  const size_t pairs = rope_.pairs(), longest = std::max(grid.rows, grid.columns);
  angles_.resize(longest * 2 * pairs);
  for (size_t at = 0; at < longest; ++at) {
    float* angles = angles_.data() + at * 2 * pairs;
    rope_.fill(at, angles, angles + pairs);
  }
  return {};
}

// Patches to x.
void VisionEncoder::embed(const PatchGrid& grid) {
  const size_t inputs = weights_.patch.inputs();
  for_tiles(grid.count(), [&](size_t first, size_t rows) {
    activations_.begin(target_, rows, inputs, weights_.patch.form());
    work_.for_rows(rows, inputs, [&](size_t row, size_t worker) {
      const uint16_t* codes = grid.patches.data() + (first + row) * inputs;
      float* values = scratch(worker);
      for (size_t i = 0; i < inputs; ++i) values[i] = bf16_to_f32(codes[i]);
      activations_.fill_row(row, values);
    });
    kernels::matmul(work_.pool(), activations_,
                    {{.weights = &weights_.patch,
                      .out = x(first),
                      .stride = width_,
                      .bias = weights_.patch_bias.data()}});
    work_.for_rows(rows, width_,
                   [&](size_t row, size_t) { rounding_.bf16(x(first + row), width_); });
  });
}

void VisionEncoder::project_qkv(const PatchGrid& grid, const VisionBlock& block) {
  for_tiles(grid.count(), [&](size_t first, size_t rows) {
    activations_.begin(target_, rows, width_, block.qkv.form());
    work_.for_rows(rows, width_, [&](size_t row, size_t worker) {
      float* normed = scratch(worker);
      work_.ops().rms_norm(x(first + row), block.norm1.data(), kNormEps, normed, width_);
      rounding_.bf16(normed, width_);
      activations_.fill_row(row, normed);
    });
    kernels::matmul(work_.pool(), activations_,
                    {{.weights = &block.qkv,
                      .out = qkv(first),
                      .stride = 3 * width_,
                      .bias = block.qkv_bias.data()}});
    work_.for_rows(rows, 3 * width_, [&](size_t row, size_t worker) {
      rotate_and_store(first + row, grid.columns, worker);
    });
  });
}

// Queries and keys of one patch are rotated; keys and values go to their page.
void VisionEncoder::rotate_and_store(size_t patch, size_t columns, size_t worker) {
  const size_t pairs = rope_.pairs();  // of one axis
  float* row = qkv(patch);
  rounding_.bf16(row, 3 * width_);
  const float* of_row = angles_.data() + patch / columns * 2 * pairs;
  const float* of_column = angles_.data() + patch % columns * 2 * pairs;
  float* cosine = scratch(worker);  // [row's | column's]
  float* sine = cosine + 2 * pairs;
  std::copy_n(of_row, pairs, cosine);
  std::copy_n(of_column, pairs, cosine + pairs);
  std::copy_n(of_row + pairs, pairs, sine);
  std::copy_n(of_column + pairs, pairs, sine + pairs);
  for (size_t head = 0; head < 2 * size_t{config_.heads}; ++head) {  // of q, then of k
    work_.ops().rope(row + head * head_dim_, cosine, sine, 2 * pairs,
                     kernels::RopePairing::half_split);
  }
  rounding_.bf16(row, 2 * width_);
  std::byte* page = pages_.data() + patch / kernels::kPageTokens * attention_.page_bytes();
  kernels::kv_append(attention_, page, patch % kernels::kPageTokens, row + width_,
                     row + 2 * width_);
}

// Every query's place in qkv becomes its result: a worker has copied the queries of its tile before
// it writes there, and nobody else reads them.
void VisionEncoder::attend(const PatchGrid& grid) {
  const kernels::AttentionSequence all = {.pages = page_pointers_.data(),
                                          .rows = grid.count(),
                                          .bidirectional = true,
                                          .queries = qkv(0),
                                          .out = qkv(0)};
  kernels::attention(work_.pool(), target_.isa, attention_, {&all, 1}, 3 * width_, 3 * width_,
                     workspace_);
}

// x += product of the filled activations; faithful rounds the product and the sum.
void VisionEncoder::add_product(size_t first, size_t rows, const kernels::PackedMatrix& matrix,
                                const float* bias) {
  if (!rounding_.on()) {
    kernels::matmul(work_.pool(), activations_,
                    {{.weights = &matrix,
                      .out = x(first),
                      .stride = width_,
                      .bias = bias,
                      .epilogue = kernels::Epilogue::add}});
    return;
  }
  kernels::matmul(work_.pool(), activations_,
                  {{.weights = &matrix, .out = tile(0, width_), .stride = width_, .bias = bias}});
  work_.for_rows(rows, width_, [&](size_t row, size_t) {
    float* product = tile(row, width_);
    rounding_.bf16(product, width_);
    work_.ops().add(x(first + row), product, width_);
    rounding_.bf16(x(first + row), width_);
  });
}

// The attention's results through Wo, then the feed-forward part.
void VisionEncoder::mix(const PatchGrid& grid, const VisionBlock& block) {
  for_tiles(grid.count(), [&](size_t first, size_t rows) {
    activations_.begin(target_, rows, width_, block.o.form());
    work_.for_rows(rows, width_, [&](size_t row, size_t) {
      rounding_.bf16(qkv(first + row), width_);
      activations_.fill_row(row, qkv(first + row));
    });
    add_product(first, rows, block.o, block.o_bias.data());
    feed_forward(first, rows, block);
    work_.for_rows(rows, width_,
                   [&](size_t row, size_t) { work_.expect_finite(x(first + row), width_); });
  });
}

void VisionEncoder::feed_forward(size_t first, size_t rows, const VisionBlock& block) {
  const size_t inner = config_.intermediate;
  activations_.begin(target_, rows, width_, block.w1.form());
  work_.for_rows(rows, width_, [&](size_t row, size_t worker) {
    float* normed = scratch(worker);
    work_.ops().rms_norm(x(first + row), block.norm2.data(), kNormEps, normed, width_);
    rounding_.bf16(normed, width_);
    activations_.fill_row(row, normed);
  });
  kernels::matmul(work_.pool(), activations_,
                  {{.weights = &block.w1, .out = tile(0, 2 * inner), .stride = 2 * inner}});
  activations_.begin(target_, rows, inner, block.w2.form());
  work_.for_rows(rows, 2 * inner, [&](size_t row, size_t) {
    float* gate = tile(row, 2 * inner);
    rounding_.bf16(gate, 2 * inner);
    work_.ops().silu_mul(gate, gate + inner, gate, inner);
    rounding_.bf16(gate, inner);
    activations_.fill_row(row, gate);
  });
  add_product(first, rows, block.w2, nullptr);
}

// out [C * r * r]: element c * r * r + dy * r + dx; patches beyond the grid are zeros.
void VisionEncoder::merge_cell(const PatchGrid& grid, size_t cell, float* out) const {
  const size_t r = config_.downsample, area = r * r;
  const size_t top = cell / line_cells(grid) * r, left = cell % line_cells(grid) * r;
  for (size_t at = 0; at < area; ++at) {
    const size_t row = top + at / r, column = left + at % r;
    const bool inside = row < grid.rows && column < grid.columns;
    const float* patch = x_.as<float>() + (row * grid.columns + column) * width_;
    for (size_t c = 0; c < width_; ++c) out[c * area + at] = inside ? patch[c] : 0.0f;
  }
}

void VisionEncoder::align(const PatchGrid& grid, float* out) {
  for_tiles(cells(grid), [&](size_t first, size_t rows) {
    activations_.begin(target_, rows, merged_, weights_.aligner1.form());
    work_.for_rows(rows, merged_, [&](size_t row, size_t worker) {
      merge_cell(grid, first + row, scratch(worker));
      activations_.fill_row(row, scratch(worker));
    });
    kernels::matmul(work_.pool(), activations_,
                    {{.weights = &weights_.aligner1,
                      .out = tile(0, text_hidden_),
                      .stride = text_hidden_,
                      .bias = weights_.aligner1_bias.data()}});
    activations_.begin(target_, rows, text_hidden_, weights_.aligner2.form());
    work_.for_rows(rows, text_hidden_, [&](size_t row, size_t) {
      float* inner = tile(row, text_hidden_);
      rounding_.bf16(inner, text_hidden_);
      std::transform(inner, inner + text_hidden_, inner, gelu);
      rounding_.bf16(inner, text_hidden_);
      activations_.fill_row(row, inner);
    });
    kernels::matmul(work_.pool(), activations_,
                    {{.weights = &weights_.aligner2,
                      .out = out + first * text_hidden_,
                      .stride = text_hidden_,
                      .bias = weights_.aligner2_bias.data()}});
    work_.for_rows(rows, text_hidden_, [&](size_t row, size_t) {
      float* result = out + (first + row) * text_hidden_;
      rounding_.bf16(result, text_hidden_);
      work_.expect_finite(result, text_hidden_);
    });
  });
}

Result<void> VisionEncoder::encode(const PatchGrid& grid, float* out, const Observer& observer) {
  TRY(check_grid(grid));
  TRY(reserve(grid));
  const auto observe = [&](std::string_view stage) {
    if (observer) observer(stage, {x(0), grid.count() * width_});
  };
  embed(grid);
  observe("patch_embed");
  for (size_t i = 0; i < weights_.blocks.size(); ++i) {
    project_qkv(grid, weights_.blocks[i]);
    attend(grid);
    mix(grid, weights_.blocks[i]);
    if (work_.found_bad()) return not_finite("vision block " + std::to_string(i));
    observe("block" + std::to_string(i));
  }
  work_.for_rows(grid.count(), width_, [&](size_t row, size_t) {
    work_.ops().rms_norm(x(row), weights_.norm.data(), kNormEps, x(row), width_);
    rounding_.bf16(x(row), width_);
  });
  observe("norm");
  align(grid, out);
  if (work_.found_bad()) return not_finite("vision aligner");
  return {};
}

std::vector<const float*> VisionEncoder::span_embeddings(const PatchGrid& grid,
                                                         const float* rows) const {
  std::vector<const float*> positions;
  positions.reserve(lines(grid) * (line_cells(grid) + 1) + 2);
  positions.push_back(weights_.image_start.data());
  for (size_t line = 0; line < lines(grid); ++line) {
    for (size_t cell = 0; cell < line_cells(grid); ++cell, rows += text_hidden_) {
      positions.push_back(rows);
    }
    positions.push_back(weights_.image_newline.data());
  }
  positions.push_back(weights_.image_end.data());
  return positions;
}

}  // namespace deepinfer::models
