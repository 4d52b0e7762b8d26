#pragma once

// VisionEncoder: the patches of one picture to rows of the text stream (DeepSeek-V4.1).
//
//   x = We patch + be                                       [P, C]
//   per block: q|k|v = Wqkv rms_norm(x) + b, q and k rotated by row and column
//              x += Wo softmax(q k / sqrt(d)) v + b         over all patches of the picture
//              x += W2 (silu(gate) * up),  gate|up = W1 rms_norm(x)
//   cell = 3x3 patches of rms_norm(x), channel-major, zeros beyond the grid
//   row = Wa2 gelu(Wa1 cell + b) + b                        [cells, D]
//
// Source: spec vision.md section 8. `faithful` rounds every operator's output to bf16 and the
// attention's weights too; the other numerics round nothing.
//
//   auto encoder = TRY(VisionEncoder::create(tensors, config, text_hidden, target, pool));
//   std::vector<float> rows(encoder->cells(grid) * text_hidden);
//   TRY(encoder->encode(grid, rows.data()));
//
// Bits: the rows of a picture depend on the weights and its patches only; never on other pictures
// or the threads. Memory: 24 C bytes a patch (at most 9 (max_image_tokens - 2) patches), kept
// for the next picture.
//
// Threads: encode() from one thread at a time; it uses the pool.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/attention/attention.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"
#include "kernels/rope.h"
#include "models/rounding.h"
#include "models/row_work.h"
#include "models/vision/vision_weights.h"
#include "tensor/tensor.h"
#include "weights/deepseek/deepseek_config.h"

namespace deepinfer::models {

struct PatchGrid {
  uint32_t rows = 0;
  uint32_t columns = 0;
  std::span<const uint16_t> patches;  // bf16 [rows * columns][3 * patch * patch]

  size_t count() const { return size_t{rows} * columns; }
};

class VisionEncoder {
 public:
  // The pool must outlive the encoder. An error names the tensor.
  static Result<std::unique_ptr<VisionEncoder>> create(const weights::VisionTensors& tensors,
                                                       const weights::VisionConfig& config,
                                                       uint32_t text_hidden, kernels::Target target,
                                                       ThreadPool& pool,
                                                       const Progress& progress = {});

  // Rows of the result: merged cells, in raster order.
  size_t cells(const PatchGrid& grid) const;
  size_t text_hidden() const { return text_hidden_; }
  // Weights and memory for the largest picture so far.
  size_t resident_bytes() const;
  const std::vector<kernels::Choice>& choices() const { return weights_.choices; }

  // Called with the rows [P][C] of "patch_embed", "block0", ..., "norm", for tests and profiles.
  using Observer = std::function<void(std::string_view stage, std::span<const float> rows)>;

  // out [cells(grid)][text_hidden]. Fails (invalid) when the grid is empty, takes more tokens than
  // max_image_tokens or has another number of patches; exhausted; internal, naming the block, when
  // a value is NaN or infinite.
  Result<void> encode(const PatchGrid& grid, float* out, const Observer& observer = {});

  // The embedding of every position of a picture's span: start, (cells of a line, newline) for each
  // line, end. rows: what encode() gave. Pointers into rows and into this.
  std::vector<const float*> span_embeddings(const PatchGrid& grid, const float* rows) const;

 private:
  VisionEncoder(const weights::VisionConfig& config, uint32_t text_hidden, kernels::Target target,
                ThreadPool& pool, VisionWeights weights, kernels::RopeTable rope);

  size_t lines(const PatchGrid& grid) const;       // of cells
  size_t line_cells(const PatchGrid& grid) const;  // in a line
  Result<void> check_grid(const PatchGrid& grid) const;
  Result<void> reserve(const PatchGrid& grid);

  void embed(const PatchGrid& grid);
  void project_qkv(const PatchGrid& grid, const VisionBlock& block);
  void rotate_and_store(size_t patch, size_t columns, size_t worker);
  void attend(const PatchGrid& grid);
  void mix(const PatchGrid& grid, const VisionBlock& block);
  void feed_forward(size_t first, size_t rows, const VisionBlock& block);
  void add_product(size_t first, size_t rows, const kernels::PackedMatrix& matrix,
                   const float* bias);
  void merge_cell(const PatchGrid& grid, size_t cell, float* out) const;
  void align(const PatchGrid& grid, float* out);
  // visit(first, rows) for pieces of kTileRows.
  template <class Visit>
  static void for_tiles(size_t rows, Visit visit);

  float* x(size_t row) { return x_.as<float>() + row * width_; }
  float* qkv(size_t row) { return qkv_.as<float>() + row * 3 * width_; }
  float* tile(size_t row, size_t width) { return tile_.as<float>() + row * width; }
  float* scratch(size_t worker) { return scratch_.data() + worker * scratch_stride_; }

  weights::VisionConfig config_;
  size_t text_hidden_;
  size_t width_;     // C
  size_t head_dim_;  // C / heads
  size_t merged_;    // C * r * r
  kernels::Target target_;
  RowWork work_;
  Rounding rounding_;
  VisionWeights weights_;
  kernels::RopeTable rope_;
  kernels::AttentionShape attention_;
  kernels::AttentionWorkspace workspace_;
  kernels::Activations activations_;

  Buffer x_;                    // [P][C]
  Buffer qkv_;                  // [P][q | k | v]; attention's result takes the place of q
  Buffer pages_;                // [ceil(P / 128)][page], keys and values of one block
  Buffer tile_;                 // [kTileRows][max(2I, C, D)]
  std::vector<float> angles_;   // [max(rows, columns)][cosines | sines] of d/4 each
  std::vector<float> scratch_;  // [threads][scratch_stride]
  std::vector<const std::byte*> page_pointers_;
  size_t scratch_stride_ = 0;
};

}  // namespace deepinfer::models
