#include "kernels/cpu/fp8_panel.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

namespace deepinfer::kernels {
namespace {

// Codes of one row and up to 32 inputs to every 32 * unit-th byte; true when one is NaN.
template <size_t kUnit>
bool spread(const uint8_t* codes, size_t count, uint8_t* out) {
  bool nan = false;
  for (size_t k = 0; k < count; ++k) {
    out[k / kUnit * kFp8Outputs * kUnit + k % kUnit] = codes[k];
    nan |= (codes[k] & 0x7f) == 0x7f;
  }
  return nan;
}

}  // namespace

size_t fp8_panel_bytes(size_t inputs) {
  return fp8_scale_bytes(inputs) + (inputs + 31) / 32 * kFp8BlockBytes;
}

void pack_fp8_panel(const ScaledView& weights, size_t first_output, size_t unit, std::byte* panel) {
  const size_t inputs = weights.inputs();
  const size_t rows = std::min<size_t>(kFp8Outputs, weights.outputs() - first_output);
  auto* block = reinterpret_cast<uint8_t*>(panel) + fp8_scale_bytes(inputs);
  for (size_t k = 0; k < inputs; k += 32, block += kFp8BlockBytes) {
    const size_t here = std::min<size_t>(inputs - k, 32);
    bool nan = false;
    for (size_t r = 0; r < rows; ++r) {
      const auto* codes = reinterpret_cast<const uint8_t*>(weights.codes.row(first_output + r)) + k;
      nan |=
          unit == 2 ? spread<2>(codes, here, block + r * 2) : spread<4>(codes, here, block + r * 4);
    }
    const float scale =
        nan ? std::numeric_limits<float>::quiet_NaN() : weights.scale(first_output, k);
    std::memcpy(panel + k / 32 * sizeof(float), &scale, sizeof(float));
  }
}

void decode_fp8_row(const std::byte* panel, size_t lane, size_t unit, size_t inputs, float* out) {
  const std::byte* codes = panel + fp8_scale_bytes(inputs) + lane * unit;
  for (size_t k = 0; k < inputs; ++k) {
    float scale;
    std::memcpy(&scale, panel + k / 32 * sizeof(float), sizeof(float));
    out[k] =
        e4m3_to_f32(static_cast<uint8_t>(codes[k / unit * unit * kFp8Outputs + k % unit])) * scale;
  }
}

}  // namespace deepinfer::kernels
