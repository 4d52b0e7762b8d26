// The plain form of index scores: one key decoded at a time.

#include <cmath>
#include <cstring>

#include "kernels/attention/indexer_kernel.h"
#include "tensor/dtype.h"

namespace deepinfer::kernels::ref {
namespace {

void decode_key(const LatentFormat& format, const std::byte* row, float* key) {
  switch (format.code) {
    case LatentCode::f32:
      std::memcpy(key, row, format.width * sizeof(float));
      return;
    case LatentCode::bf16:
      return decode_row(DType::bf16, row, key, format.width);
    default:
      break;
  }
  const auto* codes = reinterpret_cast<const uint8_t*>(row);
  const uint8_t* scales = codes + format.width / 2;
  for (size_t i = 0; i < format.width; ++i) {
    const uint8_t nibble = i % 2 == 0 ? codes[i / 2] & 15u : codes[i / 2] >> 4;
    key[i] = e2m1_to_f32(nibble) * ue8m0_to_f32(scales[i / kIndexBlock]);
  }
}

float dot(const LatentFormat& format, const float* query, const float* key) {
  float sum = 0.0f;
  if (format.code != LatentCode::q4u) {
    for (size_t i = 0; i < format.width; ++i) sum = std::fma(query[i], key[i], sum);
    return sum;
  }
  for (size_t b = 0; b < format.width; b += kIndexBlock) {
    double block = 0.0;  // exact, in float too: an integer below 2^13 times a power of two
    for (size_t i = b; i < b + kIndexBlock; ++i) {
      block += static_cast<double>(query[i]) * static_cast<double>(key[i]);
    }
    sum += static_cast<float>(block);
  }
  return sum;
}

void scores(const IndexTile& tile, std::byte* scratch) {
  const LatentFormat& format = tile.shape->keys;
  float* key = reinterpret_cast<float*>(scratch);  // [width]
  for (size_t entry = tile.first; entry < tile.first + tile.count; ++entry) {
    decode_key(format, tile.row(entry), key);
    float score = 0.0f;
    for (size_t h = 0; h < tile.shape->heads; ++h) {
      const float value = dot(format, tile.query->query + h * format.width, key);
      score = std::fma(tile.query->weights[h], value < 0.0f ? 0.0f : value, score);
    }
    tile.query->scores[entry] = score;
  }
}

size_t scratch_bytes(const IndexShape& shape) { return shape.keys.width * sizeof(float); }

}  // namespace

const IndexKernel& index_kernel() {
  static constexpr IndexKernel kernel = {
      .scores = scores, .scratch_bytes = scratch_bytes, .encode_query = nullptr};
  return kernel;
}

}  // namespace deepinfer::kernels::ref
