#pragma once

// MlaLayer: the attention weights of one layer of DeepSeek V3 and V3.2 as
// models/deepseek_v3/mla_block.h reads them, and the widths that go with them.
//
// kv_b is cut into heads, and the key half of each head is kept transposed: scores and values are
// then products with the latent rows of the cache as they lie. Weights stay as stored: a transposed
// matrix of FP8 codes with square tiles of scales is one again, plain formats are plain again; only
// other formats (blocks along a row, tiles that do not fit the heads) become float.
//
// Threads: read-only after load.

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/attention/latent_rows.h"
#include "kernels/matmul.h"
#include "models/matrix_loader.h"
#include "models/model.h"
#include "weights/deepseek/deepseek_config.h"
#include "weights/deepseek/deepseek_tensors.h"

namespace deepinfer::models {

struct MlaShape {
  size_t hidden = 0;
  size_t heads = 0;
  size_t q_lora = 0;  // 0: queries straight from hidden
  size_t kv_lora = 0;
  size_t nope = 0;  // of a query head, not rotated
  size_t rope = 0;
  size_t value = 0;  // of a head
  float norm_eps = 0;
  float softmax_scale = 0;
  kernels::LatentFormat row;  // of the cache, width latent()
  // V3.2; index_topk 0: no indexer.
  size_t index_heads = 0;
  size_t index_dim = 0;
  size_t index_topk = 0;
  kernels::LatentFormat index_row;  // width index_dim

  size_t head() const { return nope + rope; }
  size_t query() const { return heads * head(); }
  size_t latent() const { return kv_lora + rope; }
  size_t attended() const { return heads * value; }
  size_t query_input() const { return q_lora > 0 ? q_lora : hidden; }
};
// Fails (unsupported) for widths that the kernels do not take, naming the field.
Result<MlaShape> mla_shape(const weights::DeepseekV3Config& config, KvMode kv);
// Per layer a growing stream of latent rows, then one of index keys where there is an indexer.
cache::CacheLayout mla_cache(size_t layers, const MlaShape& shape);

struct MlaIndexLayer {
  kernels::PackedMatrix q_b;              // [index_heads * index_dim, q_lora]
  kernels::PackedMatrix key;              // [index_dim, hidden]
  kernels::PackedMatrix weights;          // [index_heads, hidden]
  std::vector<float> key_norm, key_bias;  // [index_dim]
};

struct MlaLayer {
  std::vector<float> norm;                    // [hidden], before the attention
  std::optional<kernels::PackedMatrix> q_a;   // [q_lora, hidden]
  std::vector<float> q_norm;                  // [q_lora] or empty
  kernels::PackedMatrix q_b;                  // [heads * (nope + rope), query_input]
  kernels::PackedMatrix kv_a;                 // [kv_lora + rope, hidden]
  std::vector<float> kv_norm;                 // [kv_lora]
  std::vector<kernels::PackedMatrix> keys;    // [heads] of [kv_lora, nope]
  std::vector<kernels::PackedMatrix> values;  // [heads] of [value, kv_lora]
  kernels::PackedMatrix o;                    // [hidden, heads * value]
  std::optional<MlaIndexLayer> index;

  size_t bytes() const;  // of the matrices
};

// name: "layer 3 attention".
Result<MlaLayer> load_mla_layer(const weights::V3LayerTensors& tensors, const MlaShape& shape,
                                const std::string& name, MatrixLoader& loader);

}  // namespace deepinfer::models
