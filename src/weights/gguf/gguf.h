#pragma once

// The head of one .gguf file: metadata and the table of tensors.
//
// Layout (the GGUF specification of ggml, versions 2 and 3, little-endian): magic "GGUF", u32
// version, u64 tensor count, u64 metadata count; metadata as key, u32 type, value; tensors as name,
// u32 rank, u64 dimensions (innermost first, turned here), u32 type, u64 offset; padding to
// general.alignment; data. Strings are a u64 length and bytes.
//
// Limits, all checked before anything is allocated from a number: the constants below, and every
// count against the bytes that are left. Threads: any; a pure function.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "weights/checkpoint.h"
#include "weights/tensor_table.h"

namespace deepinfer::weights {

// Metadata and tensor table together. The largest vocabularies take about 16 MB.
inline constexpr uint64_t kGgufHeadLimit = uint64_t{128} << 20;
inline constexpr uint64_t kGgufKeyLimit = 65535;        // bytes, the specification's own
inline constexpr uint64_t kGgufTensorNameLimit = 256;   // bytes; the specification says 64
inline constexpr uint64_t kGgufArrayLimit = 1u << 24;   // elements
inline constexpr uint64_t kGgufAlignmentLimit = 65536;  // bytes
inline constexpr uint32_t kGgufDefaultAlignment = 32;

struct GgufHead {
  uint32_t version = 0;
  uint64_t alignment = kGgufDefaultAlignment;
  std::map<std::string, MetadataValue, std::less<>> metadata;
  std::vector<TableEntry> tensors;  // in the order of the file
};

// head: the file from its first byte on, at least as far as its table goes; file_size: what the
// system says, >= head.size(). Names the file, the key or tensor and both values when they
// disagree.
Result<GgufHead> parse_gguf(std::span<const std::byte> head, uint64_t file_size,
                            const std::string& source);

}  // namespace deepinfer::weights
