#pragma once

// JoinedHalf: half of the inputs of every row of a matrix that joins two, copied. Some GGUF files
// of V4 hold e_proj and h_proj as one matrix [D, 2D].
//
// Requires: no scales of its own, half of a row is whole blocks. Ownership: view() is into this.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/scaled_view.h"

namespace deepinfer::models {

class JoinedHalf {
 public:
  // half: 0 the first inputs, 1 the last.
  JoinedHalf(const ScaledView& joined, uint64_t half) {
    const uint64_t inputs = joined.inputs() / 2;
    const size_t row = row_bytes(joined.codes.dtype, inputs);
    bytes_.reserve(row * joined.outputs());
    for (uint64_t n = 0; n < joined.outputs(); ++n) {
      const std::byte* from = joined.codes.row(n) + half * row;
      bytes_.insert(bytes_.end(), from, from + row);
    }
    view_.codes = {joined.codes.dtype, {joined.outputs(), inputs}, bytes_.data()};
  }
  JoinedHalf(const JoinedHalf&) = delete;
  JoinedHalf& operator=(const JoinedHalf&) = delete;

  const ScaledView& view() const { return view_; }

 private:
  std::vector<std::byte> bytes_;  // [outputs][row bytes]
  ScaledView view_;
};

}  // namespace deepinfer::models
