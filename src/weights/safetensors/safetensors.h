#pragma once

// The header of one .safetensors file.
//
// Layout (https://huggingface.co/docs/safetensors): u64 little-endian length of the header, the
// header as a JSON object {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ...,
// "__metadata__": {string: string}}, then the data, which the tensors fill without holes or
// overlaps. Data may start at any byte, so read values with memcpy or decode_row, not through a
// typed pointer.
//
// Limits: a header of 100 MB (the format's own), rank 4. Threads: any; a pure function.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "weights/tensor_table.h"

namespace deepinfer::weights {

inline constexpr uint64_t kSafetensorsHeaderLimit = 100'000'000;

// head: the file from its first byte on, at least as far as the header goes; file_size: what the
// system says, >= head.size(). Names the file, the tensor and both values when they disagree.
Result<std::vector<TableEntry>> parse_safetensors(std::span<const std::byte> head,
                                                  uint64_t file_size, const std::string& source);

}  // namespace deepinfer::weights
