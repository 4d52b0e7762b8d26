#include "weights/packed/packed.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/json.h"
#include "base/json_writer.h"

namespace deepinfer::weights {
namespace {

constexpr std::string_view kMagic = "DEEPPACK";
constexpr uint32_t kVersion = 1;
constexpr size_t kPrefixBytes = 16;  // magic, version, length

constexpr std::array<std::pair<PanelLayout, std::string_view>, 4> kLayouts = {{
    {PanelLayout::rows, "rows"},
    {PanelLayout::ref, "ref"},
    {PanelLayout::avx2, "avx2"},
    {PanelLayout::wide512, "wide512"},
}};

void write_entry(JsonWriter& json, const PackedEntry& entry) {
  json.begin_object();
  json.member("name", entry.table.name);
  json.member("dtype", dtype_info(entry.table.dtype).name);
  json.key("shape");
  json.begin_array();
  for (size_t axis = 0; axis < entry.table.shape.rank(); ++axis) {
    json.value(entry.table.shape[axis]);
  }
  json.end_array();
  if (entry.packed) json.member("packed", true);
  if (entry.tile_outputs != 0) {
    json.key("tile");
    json.begin_array();
    json.value(entry.tile_outputs);
    json.value(entry.tile_inputs);
    json.end_array();
    json.member("scales", dtype_info(entry.scales).name);
  }
  json.member("offset", entry.table.begin);
  json.member("bytes", entry.table.bytes);
  json.member("xxh3", fmt::format("{:016x}", entry.checksum));
  json.end_object();
}

Result<DType> dtype_of(const JsonValue& value, std::string_view key) {
  const std::string name = TRY(value.get<std::string>(key));
  const std::optional<DType> dtype = dtype_from_name(name);
  if (!dtype) return value.error(fmt::format("{} is {}, no known format", key, printable(name)));
  return *dtype;
}

Result<Shape> shape_of(const JsonValue& value) {
  const JsonValue* list = TRY(value.member("shape"));
  std::vector<uint64_t> dims;
  for (const JsonValue& dim : TRY(list->array())) dims.push_back(TRY(dim.unsigned_integer()));
  Result<Shape> shape = Shape::create(dims);
  if (!shape.ok()) return list->error(shape.error().what);
  return shape;
}

Result<PackedEntry> read_entry(const JsonValue& value, const std::string& source) {
  PackedEntry entry;
  TableEntry& table = entry.table;
  table.name = TRY(value.get<std::string>("name"));
  table.dtype = TRY(dtype_of(value, "dtype"));
  table.shape = TRY(shape_of(value));
  table.begin = TRY(value.get<uint64_t>("offset"));
  table.bytes = TRY(value.get<uint64_t>("bytes"));
  entry.packed = TRY(value.get_or<bool>("packed", false));
  if (const JsonValue* tile = value.find("tile")) {
    const std::span<const JsonValue> sides = TRY(tile->array());
    if (sides.size() != 2) return tile->error("expected two numbers");
    entry.tile_outputs = TRY(sides[0].as<uint32_t>());
    entry.tile_inputs = TRY(sides[1].as<uint32_t>());
    entry.scales = TRY(dtype_of(value, "scales"));
  }
  const std::string digits = TRY(value.get<std::string>("xxh3"));
  const char* end = digits.data() + digits.size();
  if (digits.size() != 16 || std::from_chars(digits.data(), end, entry.checksum, 16).ptr != end) {
    return value.error("xxh3 is not 16 hexadecimal digits");
  }
  const std::string thing = tensor_thing(source, table.name);
  if (table.begin > UINT64_MAX / 2 || table.bytes > UINT64_MAX / 2) {
    return Error::corrupt(thing, fmt::format("lies at {} with {} bytes", table.begin, table.bytes));
  }
  if (entry.packed) {
    if (table.shape.rank() == 2) return entry;
    return Error::corrupt(thing, "is packed and has " + table.shape.text() + ", expected a matrix");
  }
  const uint64_t expected = TRY(tensor_bytes(table.dtype, table.shape, thing));
  if (expected == table.bytes) return entry;
  return Error::corrupt(thing,
                        fmt::format("takes {} bytes, {} {} takes {}", table.bytes,
                                    dtype_info(table.dtype).name, table.shape.text(), expected));
}

}  // namespace

std::string_view panel_layout_name(PanelLayout layout) {
  for (const auto& [value, name] : kLayouts) {
    if (value == layout) return name;
  }
  return "unknown";
}

std::optional<PanelLayout> panel_layout_from_name(std::string_view name) {
  for (const auto& [value, known] : kLayouts) {
    if (known == name) return value;
  }
  return std::nullopt;
}

std::string packed_header_text(const PackedHeader& header) {
  std::string text(kPrefixBytes, '\0');
  JsonWriter json(text);
  json.begin_object();
  json.member("panels", panel_layout_name(header.panels));
  json.member("container", header.container == Container::gguf ? "gguf" : "safetensors");
  json.member("content_id", header.content_id);
  json.member("gguf_bytes", header.gguf_bytes);
  json.key("tensors");
  json.begin_array();
  for (const PackedEntry& entry : header.entries) write_entry(json, entry);
  json.end_array();
  json.end_object();
  const auto length = static_cast<uint32_t>(text.size() - kPrefixBytes);
  std::memcpy(text.data(), kMagic.data(), kMagic.size());
  std::memcpy(text.data() + 8, &kVersion, 4);
  std::memcpy(text.data() + 12, &length, 4);
  text.resize((text.size() + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment);
  return text;
}

Result<PackedHeader> parse_packed(std::span<const std::byte> head, uint64_t file_size,
                                  const std::string& source) {
  if (head.size() < kPrefixBytes || std::memcmp(head.data(), kMagic.data(), kMagic.size()) != 0) {
    return Error::corrupt(source, "does not begin with DEEPPACK", "pack the model again");
  }
  uint32_t version = 0, length = 0;
  std::memcpy(&version, head.data() + 8, 4);
  std::memcpy(&length, head.data() + 12, 4);
  if (version != kVersion) {
    return Error::unsupported(
        source, fmt::format("is version {}, this program reads {}", version, kVersion));
  }
  if (length > kPackedHeaderLimit || length > head.size() - kPrefixBytes) {
    return Error::corrupt(source,
                          fmt::format("header of {} bytes, the file has {}", length, file_size));
  }
  const std::string_view text(reinterpret_cast<const char*>(head.data()) + kPrefixBytes, length);
  const JsonDocument document =
      TRY(JsonDocument::parse(text, source, {.bytes = kPackedHeaderLimit}));
  const JsonValue& root = document.root();
  PackedHeader header;
  const std::string panels = TRY(root.get<std::string>("panels"));
  const std::optional<PanelLayout> layout = panel_layout_from_name(panels);
  if (!layout || *layout == PanelLayout::rows) {
    return root.error("panels is " + printable(panels) + ", known are ref, avx2, wide512");
  }
  header.panels = *layout;
  const std::string container = TRY(root.get<std::string>("container"));
  if (container != "gguf" && container != "safetensors") {
    return root.error("container is " + printable(container));
  }
  header.container = container == "gguf" ? Container::gguf : Container::safetensors;
  header.content_id = TRY(root.get<std::string>("content_id"));
  header.gguf_bytes = TRY(root.get_or<uint64_t>("gguf_bytes", 0));
  const JsonValue* tensors = TRY(root.member("tensors"));
  std::vector<TableEntry> tables;
  for (const JsonValue& value : TRY(tensors->array())) {
    header.entries.push_back(TRY(read_entry(value, source)));
    tables.push_back(header.entries.back().table);
  }
  TRY(check_extents(tables, kPrefixBytes + length, file_size, Holes::allowed, source));
  return header;
}

}  // namespace deepinfer::weights
