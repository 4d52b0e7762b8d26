#pragma once

// A packed checkpoint: a directory that `deepinfer pack` wrote, whose matrices lie as panels for
// one kind of kernel, so that opening it is a mapping.
//
//   model.packed         below
//   config.json, ...     side files of the original, or metadata.gguf: the head of a GGUF file
//
// model.packed: "DEEPPACK", u32 version 1, u32 bytes of the header, the header as JSON, zeros to a
// multiple of 4096; then the tensors, each at a multiple of 4096, zeros between. The header:
//   {"panels": "wide512", "container": "safetensors", "content_id": "...", "gguf_bytes": N,
//    "tensors": [{"name", "dtype", "shape", "packed": true, "tile": [32, 32], "scales": "F8_E8M0",
//                 "offset", "bytes", "xxh3": "16 hex digits"}]}
// A packed matrix keeps its name, dtype and shape; tile and scales say what was folded into its
// panels. Little-endian throughout.
//
// Everything is checked before it is used: extents, sizes against shapes, names unique.
// Threads: any; pure functions.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"
#include "weights/checkpoint.h"
#include "weights/tensor_table.h"

namespace deepinfer::weights {

inline constexpr const char* kPackedFile = "model.packed";
inline constexpr const char* kPackedMetadata = "metadata.gguf";
inline constexpr uint64_t kPackedAlignment = 4096;
inline constexpr uint64_t kPackedHeaderLimit = uint64_t{256} << 20;

struct PackedEntry {
  TableEntry table;  // begin counts from the start of the file
  bool packed = false;
  uint32_t tile_outputs = 0;  // of scales folded into panels; 0: none
  uint32_t tile_inputs = 0;
  DType scales = DType::f8_e8m0;
  uint64_t checksum = 0;  // XXH3-64 of the bytes
};

struct PackedHeader {
  PanelLayout panels = PanelLayout::wide512;
  Container container = Container::safetensors;
  std::string content_id;   // of the original
  uint64_t gguf_bytes = 0;  // size of the GGUF file that metadata.gguf is the head of
  std::vector<PackedEntry> entries;
};

std::string_view panel_layout_name(PanelLayout layout);
std::optional<PanelLayout> panel_layout_from_name(std::string_view name);

// Magic, lengths and JSON, padded to a multiple of kPackedAlignment; its length does not depend on
// the checksums.
std::string packed_header_text(const PackedHeader& header);

// head: the file from its first byte on, at least as far as the header goes. Names the file, the
// tensor and both values when they disagree. The bytes of panels are checked by who knows kernels
// (check_panel_bytes).
Result<PackedHeader> parse_packed(std::span<const std::byte> head, uint64_t file_size,
                                  const std::string& source);

}  // namespace deepinfer::weights
