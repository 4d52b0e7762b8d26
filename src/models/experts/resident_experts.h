#pragma once

// ResidentExperts: an ExpertSource that packs every routed expert when the model is loaded.
//
//   ResidentExperts experts;
//   layer.source_layer = TRY(experts.add_layer(tensors.experts, "layer 3", loader));
//
// The matrices lie in the loader's arena, which must outlive them.
// Threads: add_layer() from the loading thread; afterwards read-only.

#include <string>
#include <vector>

#include "base/result.h"
#include "models/experts/expert_source.h"
#include "models/matrix_loader.h"
#include "weights/deepseek/deepseek_tensors.h"

namespace deepinfer::models {

class ResidentExperts final : public ExpertSource {
 public:
  // Returns the layer's number for acquire(). An error names "<where> expert 17 gate".
  Result<size_t> add_layer(const std::vector<weights::ExpertTensors>& experts,
                           const std::string& where, MatrixLoader& loader);

  // Never in parts. Requires: layer and experts exist.
  Result<ExpertLease> acquire(size_t layer, std::span<const int32_t> experts) override;
  // None of its own: the matrices count with the arena.
  size_t resident_bytes() const override { return 0; }

 private:
  std::vector<std::vector<ExpertMatrices>> layers_;  // [layers][experts]
};

// One expert, or a dense or shared feed-forward part, packed; errors name "<name> gate".
Result<ExpertMatrices> load_expert(const weights::ExpertTensors& tensors, const std::string& name,
                                   MatrixLoader& loader);

}  // namespace deepinfer::models
