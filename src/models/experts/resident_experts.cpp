#include "models/experts/resident_experts.h"

#include <utility>

namespace deepinfer::models {

Result<ExpertMatrices> load_expert(const weights::ExpertTensors& tensors, const std::string& name,
                                   MatrixLoader& loader) {
  ExpertMatrices expert;
  expert.gate = TRY(loader.matrix(tensors.gate, name + " gate"));
  expert.up = TRY(loader.matrix(tensors.up, name + " up"));
  expert.down = TRY(loader.matrix(tensors.down, name + " down"));
  return expert;
}

Result<size_t> ResidentExperts::add_layer(const std::vector<weights::ExpertTensors>& experts,
                                          const std::string& where, MatrixLoader& loader) {
  std::vector<ExpertMatrices> layer;
  layer.reserve(experts.size());
  for (size_t e = 0; e < experts.size(); ++e) {
    layer.push_back(TRY(load_expert(experts[e], where + " expert " + std::to_string(e), loader)));
  }
  layers_.push_back(std::move(layer));
  return layers_.size() - 1;
}

Result<ExpertLease> ResidentExperts::acquire(size_t layer, std::span<const int32_t> experts) {
  check(layer < layers_.size(), "layer of experts");
  ExpertLease lease;
  lease.matrices.reserve(experts.size());
  for (const int32_t expert : experts) {
    check(expert >= 0 && static_cast<size_t>(expert) < layers_[layer].size(), "expert id");
    lease.matrices.push_back(&layers_[layer][static_cast<size_t>(expert)]);
  }
  return lease;
}

}  // namespace deepinfer::models
