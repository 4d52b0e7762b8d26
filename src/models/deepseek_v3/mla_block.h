#pragma once

// MlaBlock: multi-head latent attention of DeepSeek V3, and with its indexer V3.2.
//
//   n = rms_norm(x);   qr = rms_norm(Wqa n) (or n);   q = Wqb qr, each head: nope | rope(last)
//   c = rms_norm(Wkva n, first kv_lora);   k_pe = rope(Wkva n, last)      cached: [c | k_pe]
//   q'_h = [ Kh^T q_nope,h | q_pe,h ];   a_h = softmax(scale q'_h . [c | k_pe])_t  c_t
//   x += Wo concat_h(Vh a_h)                       Wkvb = per head [Kh; Vh]
//
// Sources: DeepSeek-V2 (arXiv 2405.04434) 2.1, DeepSeek-V3 (2412.19437) 2.1; the absorbed form is
// the V2 report's, also for prompts: keys and values are never expanded per head. That costs a
// prompt (2 kv_lora + rope) / (nope + rope + value) times the multiplications of scores and values
// (3.4 in V3), and saves the expansion of every cached row per chunk. One form means that a row's
// bits do not depend on how many rows come with it.
//
// The attention of rows runs in blocks, whose size bounds the memory for latent queries.
//
// Threads: from the thread of forward(), on the pool.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/attention/latent_attention.h"
#include "kernels/matmul.h"
#include "models/deepseek_v3/mla_indexer.h"
#include "models/deepseek_v3/mla_layer.h"
#include "models/profile.h"
#include "models/rope_rows.h"
#include "models/row_work.h"

namespace deepinfer::models {

// A row of the step, and the pages of its sequence in the layer.
struct MlaRow {
  uint64_t position = 0;
  std::byte* const* pages = nullptr;        // latent rows
  std::byte* const* index_pages = nullptr;  // index keys; null: no indexer
};

class MlaBlock {
 public:
  MlaBlock(const MlaShape& shape, kernels::Target target, RowWork& work, Profile& profile);
  Result<void> create(size_t max_rows, size_t threads);
  size_t bytes() const;

  // Writes the cache entries of all rows. x [rows][hidden]; `before` names in errors what made x.
  Result<void> append(const MlaLayer& layer, const RopeRows& rope, std::span<const MlaRow> rows,
                      const float* x, const std::string& where, const std::string& before);

  // After append(): x [live][hidden] += attention of the rows of the step that `live` lists.
  Result<void> attend(const MlaLayer& layer, const RopeRows& rope, std::span<const MlaRow> rows,
                      std::span<const uint32_t> live, float* x, const std::string& where);

 private:
  Result<void> make_queries(const MlaLayer& layer, const RopeRows& rope,
                            std::span<const uint32_t> live, const std::string& where);
  void absorb_keys(const MlaLayer& layer, size_t rows);
  Result<void> attend_latent(std::span<const MlaRow> rows, std::span<const uint32_t> live,
                             const std::string& where);
  Result<void> project_values(const MlaLayer& layer, size_t rows, const std::string& where);
  void project_output(const MlaLayer& layer, size_t rows, float* x);

  // Rows of the step:
  float* query_input(size_t row) { return query_input_.as<float>() + row * shape_.query_input(); }
  float* kv(size_t row) { return kv_.as<float>() + row * shape_.latent(); }
  // Rows of a block:
  float* query(size_t slot) { return query_.as<float>() + slot * shape_.query(); }
  float* latent_query(size_t slot) {
    return latent_query_.as<float>() + slot * shape_.heads * shape_.latent();
  }
  float* latent_out(size_t slot) {
    return latent_out_.as<float>() + slot * shape_.heads * shape_.kv_lora;
  }
  float* attended(size_t slot) { return attended_.as<float>() + slot * shape_.attended(); }

  const MlaShape shape_;
  const kernels::Target target_;
  RowWork& work_;
  Profile& profile_;
  std::optional<MlaIndexer> indexer_;
  size_t block_rows_ = 0;

  Buffer query_input_;   // [max_rows][q_lora or hidden]
  Buffer kv_;            // [max_rows][kv_lora + rope]
  Buffer query_;         // [block_rows][heads][nope + rope]
  Buffer latent_query_;  // [block_rows][heads][kv_lora + rope]
  Buffer latent_out_;    // [block_rows][heads][kv_lora]
  Buffer attended_;      // [block_rows][heads][value]
  Buffer scratch_;       // [threads][hidden]

  kernels::Activations activations_;
  kernels::AttentionWorkspace workspace_;
  std::vector<uint32_t> segments_;  // [heads], rows of a block each
  std::vector<kernels::Product> products_;
  std::vector<kernels::LatentQuery> latent_queries_;
  std::vector<MlaIndexer::Row> index_rows_;
};

}  // namespace deepinfer::models
