#include "kernels/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace deepinfer::kernels {
namespace {

// The order of roundings follows the reference, which computes tables in fp32: one ulp of a
// frequency is visible in the angles of far positions.
std::vector<float> plain_frequencies(const RopeParameters& p) {
  std::vector<float> out(p.dims / 2);
  for (size_t i = 0; i < out.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(p.dims);
    const double period =
        std::pow(static_cast<double>(static_cast<float>(p.theta)), static_cast<double>(exponent));
    out[i] = 1.0f / static_cast<float>(period);
  }
  return out;
}

// Long wavelengths are stretched by the factor, short ones kept, those between are mixed.
void scale_llama3(const RopeParameters& p, std::vector<float>& frequencies) {
  const float factor = static_cast<float>(p.factor);
  const float low = static_cast<float>(p.low_freq_factor);
  const float high = static_cast<float>(p.high_freq_factor);
  const float context = static_cast<float>(p.original_context);
  for (float& frequency : frequencies) {
    const float wavelength = 2.0f * std::numbers::pi_v<float> / frequency;
    if (wavelength < context / high) continue;
    if (wavelength > context / low) {
      frequency = frequency / factor;
      continue;
    }
    const float smooth = (context / wavelength - low) / (high - low);
    frequency = (1.0f - smooth) * frequency / factor + smooth * frequency;
  }
}

// Dimension whose wavelength turns `rotations` times within the original context.
double yarn_dimension(const RopeParameters& p, double rotations) {
  return static_cast<double>(p.dims) *
         std::log(p.original_context / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(p.theta));
}

void scale_yarn(const RopeParameters& p, std::vector<float>& frequencies) {
  const double low = std::max(std::floor(yarn_dimension(p, p.beta_fast)), 0.0);
  double high =
      std::min(std::ceil(yarn_dimension(p, p.beta_slow)), static_cast<double>(p.dims) - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float position =
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float kept = 1.0f - std::clamp(position, 0.0f, 1.0f);
    const float stretched = frequencies[i] / static_cast<float>(p.factor);
    frequencies[i] = stretched * (1.0f - kept) + frequencies[i] * kept;
  }
}

Result<void> validate(const RopeParameters& p) {
  if (p.dims == 0 || p.dims % 2 != 0) {
    return Error::invalid("rope dimensions",
                          fmt::format("{} is not a positive even number", p.dims));
  }
  if (!(p.theta > 0.0) || !std::isfinite(p.theta)) {
    return Error::invalid("rope theta", fmt::format("{} is not a positive number", p.theta));
  }
  if (!(p.factor > 0.0) || !std::isfinite(p.factor)) {
    return Error::invalid("rope factor", fmt::format("{} is not a positive number", p.factor));
  }
  if (!p.freq_factors.empty() && p.freq_factors.size() != p.dims / 2) {
    return Error::invalid("rope frequency factors",
                          fmt::format("there are {}, {} dimensions need {}", p.freq_factors.size(),
                                      p.dims, p.dims / 2));
  }
  const bool needs_context =
      p.scaling == RopeScalingKind::llama3 || p.scaling == RopeScalingKind::yarn;
  if (needs_context && !(p.original_context > 0.0)) {
    return Error::invalid("rope original context",
                          fmt::format("{} is not a positive number", p.original_context));
  }
  if (p.scaling == RopeScalingKind::llama3 &&
      !(p.low_freq_factor > 0.0 && p.high_freq_factor > p.low_freq_factor)) {
    return Error::invalid("rope frequency factors of llama3",
                          fmt::format("low {} and high {} are not 0 < low < high",
                                      p.low_freq_factor, p.high_freq_factor));
  }
  if (p.scaling == RopeScalingKind::yarn &&
      !(p.theta > 1.0 && p.beta_slow > 0.0 && p.beta_fast > 0.0)) {
    return Error::invalid("rope yarn",
                          fmt::format("theta {}, beta_fast {}, beta_slow {}: out of range", p.theta,
                                      p.beta_fast, p.beta_slow));
  }
  return {};
}

}  // namespace

Result<RopeTable> RopeTable::create(const RopeParameters& parameters) {
  TRY(validate(parameters));
  RopeTable table;
  table.frequencies_ = plain_frequencies(parameters);
  switch (parameters.scaling) {
    case RopeScalingKind::none:
      break;
    case RopeScalingKind::linear:
      for (float& f : table.frequencies_) f /= static_cast<float>(parameters.factor);
      break;
    case RopeScalingKind::llama3:
      scale_llama3(parameters, table.frequencies_);
      break;
    case RopeScalingKind::yarn:
      scale_yarn(parameters, table.frequencies_);
      break;
  }
  for (size_t i = 0; i < parameters.freq_factors.size(); ++i) {
    table.frequencies_[i] /= parameters.freq_factors[i];
  }
  table.attention_factor_ = static_cast<float>(parameters.attention_factor);
  return table;
}

void RopeTable::fill(uint64_t position, float* cosine, float* sine) const noexcept {
  for (size_t i = 0; i < frequencies_.size(); ++i) {
    const float angle = static_cast<float>(position) * frequencies_[i];
    cosine[i] = static_cast<float>(std::cos(static_cast<double>(angle))) * attention_factor_;
    sine[i] = static_cast<float>(std::sin(static_cast<double>(angle))) * attention_factor_;
  }
}

}  // namespace deepinfer::kernels
