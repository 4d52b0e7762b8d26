#include "image/resize.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace deepinfer::image {
namespace {

constexpr int32_t kNativeOne = 1 << 22;  // of a weight
constexpr int32_t kHalf = 1 << 21;       // of a sum, for rounding
constexpr int kShift = 22;
constexpr uint32_t kApiTaps = 4;

uint8_t clamp_sum(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kShift, 0, 255)); }

// Source: Keys 1981 with a = -0.5, in the order of operations that Pillow has.
double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

Result<Picture> copy(const Picture& picture) {
  Picture same = TRY(Picture::create(picture.size));
  std::copy_n(picture.row(0), picture.bytes(), same.row(0));
  return same;
}

// Sums of at most 255 * 1.4 * 2^22 + 2^21 fit 31 bits.
Result<Picture> across(const Picture& picture, uint32_t width) {
  const Taps taps = native_taps(picture.size.width, width);
  Picture out = TRY(Picture::create({width, picture.size.height}));
  for (uint32_t y = 0; y < picture.size.height; ++y) {
    const uint8_t* row = picture.row(y);
    uint8_t* target = out.row(y);
    for (uint32_t i = 0; i < width; ++i, target += 3) {
      const int32_t* weights = taps.weights.data() + i * taps.stride;
      const uint8_t* sample = row + static_cast<size_t>(taps.first[i]) * 3;
      int32_t red = kHalf, green = kHalf, blue = kHalf;
      for (uint32_t t = 0; t < taps.count[i]; ++t, sample += 3) {
        red += sample[0] * weights[t];
        green += sample[1] * weights[t];
        blue += sample[2] * weights[t];
      }
      target[0] = clamp_sum(red);
      target[1] = clamp_sum(green);
      target[2] = clamp_sum(blue);
    }
  }
  return out;
}

Result<Picture> down(const Picture& picture, uint32_t height) {
  const Taps taps = native_taps(picture.size.height, height);
  Picture out = TRY(Picture::create({picture.size.width, height}));
  const size_t samples = picture.stride();
  std::vector<int32_t> sums(samples);
  for (uint32_t i = 0; i < height; ++i) {
    std::fill(sums.begin(), sums.end(), kHalf);
    for (uint32_t t = 0; t < taps.count[i]; ++t) {
      const int32_t weight = taps.weights[i * taps.stride + t];
      const uint8_t* row = picture.row(static_cast<size_t>(taps.first[i]) + t);
      for (size_t x = 0; x < samples; ++x) sums[x] += row[x] * weight;
    }
    uint8_t* target = out.row(i);
    for (size_t x = 0; x < samples; ++x) target[x] = clamp_sum(sums[x]);
  }
  return out;
}

size_t inside(int32_t index, uint32_t count) {
  return static_cast<size_t>(std::clamp<int32_t>(index, 0, static_cast<int32_t>(count) - 1));
}

// The exact sums of one source row, for the rows that follow each other: four are enough.
class ApiRows {
 public:
  ApiRows(const Picture& picture, uint32_t width)
      : picture_(picture), width_(width), taps_(api_taps(picture.size.width, width)) {
    for (auto& sums : sums_) sums.resize(size_t{width} * 3);
    held_.fill(SIZE_MAX);
  }

  const int32_t* row(size_t y) {
    std::vector<int32_t>& sums = sums_[y % kApiTaps];
    if (held_[y % kApiTaps] == y) return sums.data();
    held_[y % kApiTaps] = y;
    const uint8_t* source = picture_.row(y);
    for (uint32_t i = 0; i < width_; ++i) {
      std::array<int32_t, 3> sum = {};
      for (uint32_t t = 0; t < kApiTaps; ++t) {
        const uint8_t* sample =
            source + 3 * inside(taps_.first[i] + static_cast<int32_t>(t), picture_.size.width);
        const int32_t weight = taps_.weights[i * kApiTaps + t];
        for (size_t c = 0; c < 3; ++c) sum[c] += sample[c] * weight;
      }
      std::copy_n(sum.begin(), 3, sums.begin() + size_t{i} * 3);
    }
    return sums.data();
  }

 private:
  const Picture& picture_;
  uint32_t width_;
  Taps taps_;
  std::array<std::vector<int32_t>, kApiTaps> sums_;  // [width][3]
  std::array<size_t, kApiTaps> held_;                // the source row of each
};

}  // namespace

Taps native_taps(uint32_t inputs, uint32_t outputs) {
  const double scale = static_cast<double>(inputs) / outputs;
  const double spread = std::max(scale, 1.0);
  const double support = 2.0 * spread;
  Taps taps;
  taps.stride = static_cast<size_t>(std::ceil(support)) * 2 + 1;
  taps.first.resize(outputs);
  taps.count.resize(outputs);
  taps.weights.resize(outputs * taps.stride);
  std::vector<double> weights(taps.stride);
  for (uint32_t i = 0; i < outputs; ++i) {
    const double centre = (i + 0.5) * scale;
    const int32_t low = std::max(0, static_cast<int32_t>(std::trunc(centre - support + 0.5)));
    const int32_t high = std::min(static_cast<int32_t>(inputs),
                                  static_cast<int32_t>(std::trunc(centre + support + 0.5)));
    const auto count = static_cast<uint32_t>(high - low);
    check(count <= taps.stride, "taps of a sample");
    double sum = 0.0;
    for (uint32_t t = 0; t < count; ++t) {
      weights[t] = cubic((low + static_cast<int32_t>(t) - centre + 0.5) * (1.0 / spread));
      sum += weights[t];
    }
    taps.first[i] = low;
    taps.count[i] = count;
    for (uint32_t t = 0; t < count; ++t) {
      const double weight = (sum != 0.0 ? weights[t] / sum : weights[t]) * kNativeOne;
      taps.weights[i * taps.stride + t] =
          static_cast<int32_t>(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
  }
  return taps;
}

Taps api_taps(uint32_t inputs, uint32_t outputs) {
  const double scale = 1.0 / (static_cast<double>(outputs) / inputs);
  constexpr float a = -0.75f;
  Taps taps;
  taps.stride = kApiTaps;
  taps.first.resize(outputs);
  taps.count.assign(outputs, kApiTaps);
  taps.weights.resize(outputs * kApiTaps);
  for (uint32_t i = 0; i < outputs; ++i) {
    const auto position = static_cast<float>((i + 0.5) * scale - 0.5);
    const float below = std::floor(position);
    const float x = position - below, y = 1.0f - x, x1 = x + 1.0f;
    const float c0 = ((a * x1 - 5.0f * a) * x1 + 8.0f * a) * x1 - 4.0f * a;
    const float c1 = ((a + 2.0f) * x - (a + 3.0f)) * x * x + 1.0f;
    const float c2 = ((a + 2.0f) * y - (a + 3.0f)) * y * y + 1.0f;
    const float c3 = 1.0f - c0 - c1 - c2;
    taps.first[i] = static_cast<int32_t>(below) - 1;
    size_t at = i * kApiTaps;
    for (const float c : {c0, c1, c2, c3}) {
      taps.weights[at++] = static_cast<int32_t>(std::nearbyint(c * 2048.0f));
    }
  }
  return taps;
}

Result<Picture> resize_native(const Picture& picture, Size size) {
  check(size.width >= 1 && size.height >= 1, "empty picture");
  if (picture.size == size) return copy(picture);
  if (picture.size.width == size.width) return down(picture, size.height);
  Picture wide = TRY(across(picture, size.width));
  if (wide.size.height == size.height) return wide;
  return down(wide, size.height);
}

Result<Picture> resize_api(const Picture& picture, Size size) {
  check(size.width >= 1 && size.height >= 1, "empty picture");
  if (picture.size == size) return copy(picture);
  Picture out = TRY(Picture::create(size));
  const Taps taps = api_taps(picture.size.height, size.height);
  ApiRows rows(picture, size.width);
  const size_t samples = out.stride();
  for (uint32_t y = 0; y < size.height; ++y) {
    std::array<const int32_t*, kApiTaps> from;
    for (uint32_t t = 0; t < kApiTaps; ++t) {
      from[t] = rows.row(inside(taps.first[y] + static_cast<int32_t>(t), picture.size.height));
    }
    const int32_t* weights = taps.weights.data() + y * kApiTaps;
    uint8_t* target = out.row(y);
    for (size_t x = 0; x < samples; ++x) {
      int32_t sum = kHalf;
      for (uint32_t t = 0; t < kApiTaps; ++t) sum += from[t][x] * weights[t];
      target[x] = clamp_sum(sum);
    }
  }
  return out;
}

}  // namespace deepinfer::image
