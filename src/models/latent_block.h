#pragma once

// LatentBlock: the attention that V4 and V4.1 share, without what makes entries and selects them:
//
//   qr = rms_norm(q_a h);   q = rope(q_b qr)            V4: every head / sqrt(mean(head^2) + eps)
//   kv = rope(rms_norm(kv h))                           one row, key and value of all heads
//   o  = attention(q; window rows, entries)             kernels/attention/latent_attention.h
//   y  = o_b concat_g(o_a[g] rope_back(o of the heads of group g))
//
// Sources: spec v41.md 4.3, 4.6; v4.md 4.2, 4.5, 4.6. faithful: products' outputs, norms and
// rotated rows are bf16; inputs of FP8 matrices q8; V4 rounds the input of o_a to bf16 instead.
//
//   TRY(block.project(layer, rope, h, rows, {.matrix = &indexer_q, .out = iq}, fresh, where));
//   ... entries and their selection ...
//   TRY(block.attend(layer, rope, queries, rows, out, where));
//
// Threads: from the thread of forward(), on the pool.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/attention/latent_attention.h"
#include "kernels/matmul.h"
#include "models/matrix_loader.h"
#include "models/profile.h"
#include "models/rope_rows.h"
#include "models/rounding.h"
#include "models/row_work.h"
#include "weights/deepseek/deepseek_tensors.h"

namespace deepinfer::models {

struct LatentBlockShape {
  size_t hidden = 0;
  size_t heads = 0;
  size_t head_dim = 0;
  size_t q_lora = 0;
  size_t o_lora = 0;
  size_t o_groups = 0;
  float norm_eps = 0;
  bool norm_heads = false;       // V4
  bool plain_o_a_input = false;  // V4: faithful rounds the input of o_a to bf16, not to q8
  kernels::LatentFormat window;  // of window rows

  size_t query() const { return heads * head_dim; }
  size_t group() const { return query() / o_groups; }
  size_t rank() const { return o_groups * o_lora; }
};

// One layer's.
struct LatentLayer {
  kernels::PackedMatrix q_a;               // [q_lora, hidden]
  kernels::PackedMatrix q_b;               // [heads * head_dim, q_lora]
  kernels::PackedMatrix kv;                // [head_dim, hidden]
  std::vector<kernels::PackedMatrix> o_a;  // [o_groups] of [o_lora, group]
  kernels::PackedMatrix o_b;               // [hidden, rank]
  std::vector<float> q_norm;               // [q_lora]
  std::vector<float> kv_norm;              // [head_dim]
  std::vector<float> sink;                 // [heads]

  size_t bytes() const;  // of the matrices
};
Result<LatentLayer> load_latent_layer(const weights::LatentAttentionTensors& tensors,
                                      const LatentBlockShape& shape, const std::string& name,
                                      MatrixLoader& loader);

// A product that reads qr beside q_b: the indexer's queries.
struct QueryProduct {
  const kernels::PackedMatrix* matrix = nullptr;  // null: none
  float* out = nullptr;                           // [rows][matrix->outputs()]
};

class LatentBlock {
 public:
  LatentBlock(const LatentBlockShape& shape, kernels::Target target, Rounding rounding,
              RowWork& work, Profile& profile);
  Result<void> create(size_t max_rows, size_t threads);
  size_t bytes() const;
  const LatentBlockShape& shape() const { return shape_; }

  // h [rows][hidden], normed -> query(row), and window rows encoded into fresh [rows][row_bytes],
  // with the rows of `rope`. `more.out` is as the product leaves it, finite.
  Result<void> project(const LatentLayer& layer, const RopeRows& rope, const float* h, size_t rows,
                       QueryProduct more, std::byte* fresh, const std::string& where);

  // The window row of `kv` [head_dim], what the product left, which changes; any thread.
  void encode_window_row(const LatentLayer& layer, const RopeRows& rope, size_t row, float* kv,
                         std::byte* out) const;

  float* query(size_t row) { return query_.as<float>() + row * shape_.query(); }
  // Where the kernel writes the row's attention, [heads][head_dim].
  float* attended(size_t row) { return attended_.as<float>() + row * shape_.query(); }

  // queries: one per row, in order, of query(row) and attended(row); entries and their format are
  // the caller's -> out [rows][hidden], not rounded.
  Result<void> attend(const LatentLayer& layer, const RopeRows& rope,
                      std::span<const kernels::LatentQuery> queries, kernels::LatentFormat entries,
                      size_t entries_per_page, float* out, const std::string& where);

 private:
  void finish_query(const RopeRows& rope, size_t row);
  void multiply(Operation operation, const kernels::Activations& activations, size_t rows,
                std::span<const kernels::Product> products);

  const LatentBlockShape shape_;
  const kernels::Target target_;
  const Rounding rounding_;
  RowWork& work_;
  Profile& profile_;
  const kernels::LatentRowOps& latent_ops_;
  kernels::Activations activations_;
  kernels::AttentionWorkspace workspace_;
  std::vector<float> ones_;  // [head_dim], the weight of a head's norm
  size_t scratch_stride_ = 0;
  Buffer qr_;        // [max_rows][q_lora]
  Buffer kv_;        // [max_rows][head_dim]
  Buffer query_;     // [max_rows][heads][head_dim]
  Buffer attended_;  // [max_rows][heads][head_dim]
  Buffer rank_;      // [max_rows][o_groups][o_lora]
  Buffer scratch_;   // [threads][scratch_stride], the widest input of a product
};

}  // namespace deepinfer::models
