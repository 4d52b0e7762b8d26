#include "models/hyper_streams.h"

#include <cstring>

namespace deepinfer::models {

Result<HyperConnection> load_hyper(const weights::HyperTensors& tensors, bool head,
                                   const std::string& name, MatrixLoader& loader) {
  HyperConnection connection;
  connection.fn = TRY(loader.floats(tensors.fn, name + " fn"));
  connection.base = TRY(loader.floats(tensors.base, name + " base"));
  connection.scale = TRY(loader.floats(tensors.scale, name + " scale"));
  connection.head = head;
  return connection;
}

HyperStreams::HyperStreams(const weights::HyperConfig& config, size_t hidden, double norm_eps,
                           kernels::Target target, Rounding rounding, RowWork& work)
    : shape_{.streams = config.streams,
             .hidden = hidden,
             .iterations = config.sinkhorn_iterations,
             .eps = static_cast<float>(config.eps),
             .norm_eps = static_cast<float>(norm_eps)},
      isa_(target.isa),
      rounding_(rounding),
      work_(work),
      ops_(kernels::hyper_row_ops(target.isa)) {}

Result<void> HyperStreams::create(size_t max_rows) {
  streams_ = TRY(Buffer::create(max_rows * width() * sizeof(float)));
  mixes_.resize(max_rows);
  return {};
}

void HyperStreams::set(size_t row, const float* embedding) {
  for (size_t j = 0; j < shape_.streams; ++j) {
    std::memcpy(this->row(row) + j * shape_.hidden, embedding, shape_.hidden * sizeof(float));
  }
}

void HyperStreams::move(size_t from, size_t to) {
  if (from == to) return;
  std::memcpy(row(to), row(from), width() * sizeof(float));
  mixes_[to] = mixes_[from];
}

void HyperStreams::mix(const HyperConnection& weights, size_t rows) {
  kernels::hyper_mix(work_.pool(), isa_, shape_, weights.view(), streams_.as<float>(), rows,
                     mixes_.data());
}

void HyperStreams::gather(size_t row, const float* pre, float* out) {
  ops_.collapse(this->row(row), pre, shape_.streams, shape_.hidden, out);
  rounding_.bf16(out, shape_.hidden);
}

void HyperStreams::collapse(size_t row, const float* pre, const std::vector<float>& norm,
                            float* out) {
  gather(row, pre, out);
  work_.ops().rms_norm(out, norm.data(), shape_.norm_eps, out, shape_.hidden);
  rounding_.bf16(out, shape_.hidden);
}

void HyperStreams::expand(size_t row, float* f) {
  rounding_.bf16(f, shape_.hidden);
  ops_.expand(this->row(row), f, mixes_[row], shape_.streams, shape_.hidden);
  rounding_.bf16(this->row(row), width());
}

}  // namespace deepinfer::models
