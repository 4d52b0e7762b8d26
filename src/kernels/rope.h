#pragma once

// Rotary position tables. Source: Su et al. 2021; linear, Llama-3 and YaRN scaling as Hugging
// Face's modeling_rope_utils states them.
//
// Threads: a RopeTable is read-only after create(); fill() is a pure function of the position.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"

namespace deepinfer::kernels {

enum class RopeScalingKind { none, linear, llama3, yarn };

struct RopeParameters {
  double theta = 10000.0;
  size_t dims = 0;  // rotated dimensions, even
  RopeScalingKind scaling = RopeScalingKind::none;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  double original_context = 0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double attention_factor = 1.0;         // multiplies cosine and sine
  std::vector<float> freq_factors = {};  // [dims/2] or empty: divides each frequency
};

class RopeTable {
 public:
  // Fails when dims is odd or 0, theta or factor is not positive, freq_factors has another length.
  static Result<RopeTable> create(const RopeParameters& parameters);

  size_t pairs() const { return frequencies_.size(); }
  const std::vector<float>& frequencies() const {
    return frequencies_;
  }  // [pairs], radians/position

  // cosine, sine [pairs] of `position`: angle = float(position) * frequency in fp32 as the
  // reference does, then double cos and sin rounded once, times attention_factor.
  void fill(uint64_t position, float* cosine, float* sine) const noexcept;

 private:
  std::vector<float> frequencies_;
  float attention_factor_ = 1.0f;
};

}  // namespace deepinfer::kernels
