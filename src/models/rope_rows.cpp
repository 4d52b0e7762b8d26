#include "models/rope_rows.h"

#include <utility>

namespace deepinfer::models {

kernels::RopeParameters rope_parameters(const weights::RopeConfig& config) {
  kernels::RopeParameters rope;
  rope.theta = config.theta;
  rope.dims = config.dims;
  switch (config.scaling) {
    case weights::RopeScaling::none:
      rope.scaling = kernels::RopeScalingKind::none;
      break;
    case weights::RopeScaling::linear:
      rope.scaling = kernels::RopeScalingKind::linear;
      break;
    case weights::RopeScaling::llama3:
      rope.scaling = kernels::RopeScalingKind::llama3;
      break;
    case weights::RopeScaling::yarn:
      rope.scaling = kernels::RopeScalingKind::yarn;
      break;
  }
  rope.factor = config.factor;
  rope.low_freq_factor = config.low_freq_factor;
  rope.high_freq_factor = config.high_freq_factor;
  rope.original_context = config.original_context;
  rope.beta_fast = config.beta_fast;
  rope.beta_slow = config.beta_slow;
  rope.attention_factor = config.attention_factor;
  rope.freq_factors = config.freq_factors;
  return rope;
}

Result<RopeRows> RopeRows::create(const weights::RopeConfig& config, size_t max_rows) {
  kernels::RopeTable table = TRY(kernels::RopeTable::create(rope_parameters(config)));
  Buffer rows = TRY(Buffer::create(max_rows * 3 * table.pairs() * sizeof(float)));
  return RopeRows(std::move(table), std::move(rows));
}

void RopeRows::fill(RowWork& work, std::span<const uint64_t> positions) {
  work.for_rows(positions.size(), stride(), [&](size_t row, size_t) {
    float* cosine = rows_.as<float>() + row * stride();
    float* sine = cosine + pairs();
    table_.fill(positions[row], cosine, sine);
    for (size_t i = 0; i < pairs(); ++i) sine[pairs() + i] = -sine[i];
  });
}

}  // namespace deepinfer::models
