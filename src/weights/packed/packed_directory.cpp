#include <fmt/format.h>

#include <utility>

#include "kernels/matmul.h"
#include "tensor/scaled_view.h"
#include "weights/checkpoint_files.h"
#include "weights/gguf/gguf.h"
#include "weights/packed/packed.h"

namespace deepinfer::weights {
namespace {

// A set whose kernels read the layout and whose code is in every build.
kernels::Isa isa_of(PanelLayout layout) {
  switch (layout) {
    case PanelLayout::avx2:
      return kernels::Isa::avx2;
    case PanelLayout::wide512:
      return kernels::Isa::emulated512;
    case PanelLayout::rows:
    case PanelLayout::ref:
      break;
  }
  return kernels::Isa::ref;
}

Result<void> check_panel_bytes(const PackedEntry& entry, PanelLayout layout,
                               const std::string& source) {
  ScaledView view;
  view.codes = {.dtype = entry.table.dtype, .shape = entry.table.shape};
  view.scales.dtype = entry.scales;
  view.tile_outputs = entry.tile_outputs;
  view.tile_inputs = entry.tile_inputs;
  const std::string thing = tensor_thing(source, entry.table.name);
  const Result<size_t> expected = kernels::PackedMatrix::packed_bytes(
      view, {.isa = isa_of(layout), .numerics = kernels::Numerics::exact});
  if (!expected.ok()) return Error::corrupt(thing, expected.error().text());
  if (expected.value() == entry.table.bytes) return {};
  return Error::corrupt(
      thing, fmt::format("takes {} bytes, the {} panels of {} take {}", entry.table.bytes,
                         panel_layout_name(layout), entry.table.shape.text(), expected.value()));
}

}  // namespace

Result<CheckpointFiles> open_packed_directory(const std::string& directory) {
  const std::string path = directory + "/" + kPackedFile;
  MappedFile file = TRY(MappedFile::open(path));
  const PackedHeader header = TRY(parse_packed(file.bytes(), file.bytes().size(), path));
  CheckpointFiles parts;
  parts.container = header.container;
  std::vector<TableEntry> table;
  for (const PackedEntry& entry : header.entries) {
    table.push_back(entry.table);
    if (!entry.packed) continue;
    TRY(check_panel_bytes(entry, header.panels, path));
    table.back().panels = header.panels;
    table.back().checksum = entry.checksum;
  }
  parts.files.push_back(std::move(file));
  parts.tables.push_back(std::move(table));
  TRY(read_side_files(directory, parts));
  if (header.container == Container::gguf) {
    const std::string metadata = directory + "/" + kPackedMetadata;
    const MappedFile head = TRY(MappedFile::open(metadata));
    parts.metadata = std::move(TRY(parse_gguf(head.bytes(), header.gguf_bytes, metadata)).metadata);
  } else if (!parts.side_files.contains("config.json")) {
    return Error::not_found(directory, "is a packed model without config.json",
                            "pack the model again");
  }
  return parts;
}

}  // namespace deepinfer::weights
