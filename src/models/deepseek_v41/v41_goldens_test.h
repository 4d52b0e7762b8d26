#pragma once

// The goldens of V4.1 and ways to compare with them, for the tests of this folder.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "models/deepseek_v41/deepseek_v41_model.h"
#include "models/goldens_test.h"
#include "models/model_runner.h"

namespace deepinfer::models {

inline std::string v41_path(const std::string& model) {
  return std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/deepseek_v41/" + model;
}
inline GoldenFile v41_golden(const std::string& name) {
  return GoldenFile("deepseek_v41/" + name + ".safetensors");
}
inline DeepseekV41& v41_model(ModelRunner& runner) {
  return dynamic_cast<DeepseekV41&>(runner.model());
}

struct Difference {
  double largest = 0;
  double rms = 0;
};
inline Difference difference(std::span<const float> actual, std::span<const float> expected) {
  EXPECT_EQ(actual.size(), expected.size());
  Difference d;
  for (size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    const double delta = std::abs(double{actual[i]} - double{expected[i]});
    if (std::isnan(delta)) return {INFINITY, INFINITY};
    d.largest = std::max(d.largest, delta);
    d.rms += delta * delta;
  }
  d.rms = std::sqrt(d.rms / static_cast<double>(std::max<size_t>(1, actual.size())));
  return d;
}

inline size_t argmax(std::span<const float> row) {
  return static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

// The part of a growing stream that holds entries [0, count) of `per_page` a page, decoded.
inline std::vector<float> decoded_entries(const cache::SequenceCache& cache, size_t stream,
                                          size_t per_page, const kernels::LatentFormat& format,
                                          size_t count) {
  std::vector<float> out(count * format.width);
  const kernels::LatentRowOps& ops = kernels::latent_row_ops(kernels::Isa::ref);
  for (size_t j = 0; j < count; ++j) {
    ops.decode(format, cache.page(j / per_page, stream) + j % per_page * format.row_bytes(),
               out.data() + j * format.width);
  }
  return out;
}

// Rows [count][width], -1 padded, to the ids that are there.
inline std::vector<uint32_t> row_ids(const GoldenTensor& tensor, size_t row) {
  const size_t width = tensor.shape.back();
  std::vector<uint32_t> ids;
  for (int32_t id : tensor.as<int32_t>().subspan(row * width, width)) {
    if (id >= 0) ids.push_back(static_cast<uint32_t>(id));
  }
  return ids;
}

// ids[first, end)
inline std::vector<int32_t> part(const std::vector<int32_t>& ids, size_t first, size_t end) {
  return {ids.begin() + static_cast<std::ptrdiff_t>(first),
          ids.begin() + static_cast<std::ptrdiff_t>(end)};
}

// A second sequence with the same bytes, as a prefix store would bring it back.
inline cache::SequenceCache copy_of(ModelRunner& runner, cache::SequenceCache& from,
                                    bool frontier) {
  const cache::CacheLayout& layout = runner.model().cache_layout();
  cache::SequenceCache to = runner.new_sequence();
  EXPECT_TRUE(to.reserve(from.length()).ok());
  for (size_t page = 0; page < cache::pages_for(from.length()); ++page) {
    std::memcpy(to.page(page, 0), from.page(page, 0), layout.page_bytes());
  }
  if (frontier) std::memcpy(to.frontier(), from.frontier(), layout.frontier_bytes());
  to.set_length(from.length());
  return to;
}

}  // namespace deepinfer::models
