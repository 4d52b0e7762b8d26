#pragma once

// The tiny V4 models of tests/golden/deepseek_v4 on every instruction set, for the tests of this
// folder.

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "models/goldens_test.h"
#include "models/model_runner.h"

namespace deepinfer::models {

inline constexpr float kLogitTolerance = 1e-3f;  // of the goldens' README
inline constexpr float kTapTolerance = 3e-4f;

using V4Case = std::tuple<std::string, kernels::Isa>;

inline std::string v4_case_name(const ::testing::TestParamInfo<V4Case>& parameter) {
  return std::get<0>(parameter.param) + "_" +
         std::string(kernels::isa_name(std::get<1>(parameter.param)));
}

class V4GoldenModel : public ::testing::TestWithParam<V4Case> {
 protected:
  // On the case's instruction set, whatever `options` says.
  static ModelRunner open(RunnerOptions options = {}) {
    const auto& [name, isa] = GetParam();
    options.isa = isa;
    return ModelRunner::open(
        std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/deepseek_v4/" + name, options);
  }
  static std::string golden_name() { return "deepseek_v4/" + std::get<0>(GetParam()); }
  static GoldenFile golden() { return GoldenFile(golden_name() + "/golden.safetensors"); }
};

}  // namespace deepinfer::models
