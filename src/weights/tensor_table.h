#pragma once

// The table of tensors of one file as its parser read it, and the checks both containers share.
//
// Source of the text in every error is the file's path; names out of the file go through
// printable() first. Threads: any; everything here is a pure function.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tensor/tensor.h"

namespace deepinfer::weights {

struct TableEntry {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;         // outermost dimension first
  uint64_t begin = 0;  // of the first byte, counted from the start of the file
  uint64_t bytes = 0;  // what dtype and shape take; of panels: what the kernels make of them
  PanelLayout panels = PanelLayout::rows;
  std::optional<uint64_t> checksum;  // XXH3-64, of packed checkpoints

  uint64_t end() const { return begin + bytes; }
};

// A text out of an untrusted file, fit for a terminal: everything but printable ASCII is written
// \xNN, and what goes beyond 120 bytes is cut with "...".
std::string printable(std::string_view text);

// "model.gguf: tensor blk.0.attn_q.weight".
std::string tensor_thing(const std::string& source, std::string_view name);

// Bytes of a tensor stored as rows of whole blocks. Fails (naming `thing`) when the innermost
// dimension is not a multiple of the block, or when the size does not fit 63 bits.
Result<uint64_t> tensor_bytes(DType dtype, const Shape& shape, const std::string& thing);

enum class Holes { allowed, refused };

// Checks that names are unique and that the extents lie in data_begin .. file_size without sharing
// a byte; Holes::refused also wants every byte of that range to belong to a tensor.
// Requires begin + bytes of every entry not to overflow.
Result<void> check_extents(std::span<const TableEntry> entries, uint64_t data_begin,
                           uint64_t file_size, Holes holes, const std::string& source);

}  // namespace deepinfer::weights
