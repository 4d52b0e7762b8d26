#pragma once

// HyperStreams: the residual of V4 and V4.1: n streams of `hidden` values per row, and the mixes of
// the sublayer that is being computed (kernels/hyper_connection.h).
//
//   streams.mix(hc_attn, rows);
//   streams.collapse(row, streams.mix_of(row).pre.data(), norm, h)     // V4; V4.1: the last pre
//   streams.expand(row, sublayer output)
//
// faithful: the collapsed row, the normed row, the sublayer's output and the streams are bf16.
//
// Threads: create() and mix() from the thread of forward(); the row functions from workers.

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/hyper_connection.h"
#include "models/matrix_loader.h"
#include "models/rounding.h"
#include "models/row_work.h"
#include "weights/deepseek/deepseek_config.h"
#include "weights/deepseek/deepseek_tensors.h"

namespace deepinfer::models {

// Weights of one sublayer, or of a head.
struct HyperConnection {
  std::vector<float> fn, base, scale;  // shapes as kernels::HyperWeights says
  bool head = false;

  kernels::HyperWeights view() const { return {fn.data(), base.data(), scale.data(), head}; }
  size_t bytes() const { return (fn.size() + base.size() + scale.size()) * sizeof(float); }
};
Result<HyperConnection> load_hyper(const weights::HyperTensors& tensors, bool head,
                                   const std::string& name, MatrixLoader& loader);

class HyperStreams {
 public:
  HyperStreams(const weights::HyperConfig& config, size_t hidden, double norm_eps,
               kernels::Target target, Rounding rounding, RowWork& work);
  Result<void> create(size_t max_rows);
  size_t bytes() const { return streams_.size(); }
  size_t count() const { return shape_.streams; }

  float* row(size_t row) { return streams_.as<float>() + row * width(); }  // [n][hidden]
  size_t width() const { return shape_.streams * shape_.hidden; }
  // All streams become `embedding` [hidden].
  void set(size_t row, const float* embedding);
  // Row `to` becomes row `from`; to <= from.
  void move(size_t from, size_t to);

  // Mixes of rows [0, rows) from their present streams.
  void mix(const HyperConnection& weights, size_t rows);
  const kernels::HyperMix& mix_of(size_t row) const { return mixes_[row]; }

  // out [hidden] = sum_j pre[j] stream_j
  void gather(size_t row, const float* pre, float* out);
  // out [hidden] = rms_norm(sum_j pre[j] stream_j) * norm
  void collapse(size_t row, const float* pre, const std::vector<float>& norm, float* out);
  // Streams of `row` take the sublayer's output f [hidden], which is rounded in place.
  void expand(size_t row, float* f);

 private:
  kernels::HyperShape shape_;
  kernels::Isa isa_;
  Rounding rounding_;
  RowWork& work_;
  const kernels::HyperRowOps& ops_;
  Buffer streams_;                        // [max_rows][n][hidden]
  std::vector<kernels::HyperMix> mixes_;  // [max_rows]
};

}  // namespace deepinfer::models
