#include "weights/safetensors/safetensors.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <array>
#include <cstring>
#include <optional>
#include <string_view>

namespace deepinfer::weights {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

struct NamedDType {
  std::string_view name;
  DType dtype;
};
constexpr std::array kDTypes = {
    NamedDType{"F32", DType::f32},         NamedDType{"F16", DType::f16},
    NamedDType{"BF16", DType::bf16},       NamedDType{"F64", DType::f64},
    NamedDType{"I8", DType::i8},           NamedDType{"I16", DType::i16},
    NamedDType{"I32", DType::i32},         NamedDType{"I64", DType::i64},
    NamedDType{"U8", DType::u8},           NamedDType{"BOOL", DType::boolean},
    NamedDType{"F8_E4M3", DType::f8_e4m3}, NamedDType{"F8_E5M2", DType::f8_e5m2},
    NamedDType{"F8_E8M0", DType::f8_e8m0}, NamedDType{"F4", DType::f4_e2m1},
};

std::optional<DType> find_dtype(std::string_view name) {
  for (const NamedDType& entry : kDTypes) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

Result<DType> read_dtype(const object& fields, const std::string& thing) {
  std::string_view name;
  if (fields["dtype"].get(name) != simdjson::SUCCESS) {
    return Error::corrupt(thing, "has no dtype, or one that is not a string");
  }
  const std::optional<DType> dtype = find_dtype(name);
  if (dtype) return *dtype;
  std::string known;
  for (const NamedDType& entry : kDTypes) known += fmt::format(" {}", entry.name);
  return Error::unsupported(thing, fmt::format("dtype {} is none of{}", printable(name), known));
}

Result<Shape> read_shape(const object& fields, const std::string& thing) {
  array values;
  if (fields["shape"].get(values) != simdjson::SUCCESS) {
    return Error::corrupt(thing, "has no shape, or one that is not an array");
  }
  std::array<uint64_t, Shape::kMaxRank> dims{};
  size_t rank = 0;
  for (const element value : values) {
    if (rank == Shape::kMaxRank) {
      return Error::unsupported(
          thing, fmt::format("has rank {}, the limit is {}", values.size(), Shape::kMaxRank));
    }
    if (value.get(dims[rank]) != simdjson::SUCCESS) {
      return Error::corrupt(thing, fmt::format("dimension {} of the shape is {}, expected a whole "
                                               "number",
                                               rank, printable(simdjson::to_string(value))));
    }
    ++rank;
  }
  Result<Shape> shape = Shape::create(std::span(dims).first(rank));
  if (!shape.ok()) return Error::corrupt(thing, shape.error().text());
  return shape;
}

struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
};

Result<Range> read_offsets(const object& fields, const std::string& thing) {
  array values;
  if (fields["data_offsets"].get(values) != simdjson::SUCCESS) {
    return Error::corrupt(thing, "has no data_offsets, or ones that are not an array");
  }
  Range range;
  if (values.size() != 2 || values.at(0).get(range.begin) != simdjson::SUCCESS ||
      values.at(1).get(range.end) != simdjson::SUCCESS) {
    return Error::corrupt(thing, fmt::format("data_offsets are {}, expected two whole numbers",
                                             printable(simdjson::to_string(values))));
  }
  return range;
}

// data_begin .. file_size is where the file's data lies.
Result<TableEntry> read_entry(std::string_view name, const element& value, uint64_t data_begin,
                              uint64_t file_size, const std::string& source) {
  const std::string thing = tensor_thing(source, name);
  object fields;
  if (value.get(fields) != simdjson::SUCCESS) return Error::corrupt(thing, "is not an object");
  TableEntry entry;
  entry.name = std::string(name);
  entry.dtype = TRY(read_dtype(fields, thing));
  entry.shape = TRY(read_shape(fields, thing));
  entry.bytes = TRY(tensor_bytes(entry.dtype, entry.shape, thing));
  const Range range = TRY(read_offsets(fields, thing));
  const uint64_t data_bytes = file_size - data_begin;
  if (range.begin > range.end || range.end > data_bytes) {
    return Error::corrupt(thing, fmt::format("data_offsets {}..{} lie outside the {} data bytes of "
                                             "the file",
                                             range.begin, range.end, data_bytes));
  }
  if (range.end - range.begin != entry.bytes) {
    return Error::corrupt(
        thing, fmt::format("data_offsets {}..{} are {} bytes, {} of shape {} takes {}", range.begin,
                           range.end, range.end - range.begin, dtype_info(entry.dtype).name,
                           entry.shape.text(), entry.bytes));
  }
  entry.begin = data_begin + range.begin;
  return entry;
}

Result<void> check_metadata(const element& value, const std::string& source) {
  object fields;
  if (value.get(fields) != simdjson::SUCCESS) {
    return Error::corrupt(source, "__metadata__ is not an object");
  }
  for (const auto& [key, text] : fields) {
    if (!text.is_string()) {
      return Error::corrupt(source,
                            fmt::format("__metadata__ {} is {}, expected a string", printable(key),
                                        printable(simdjson::to_string(text))));
    }
  }
  return {};
}

// The bytes of the header, inside head.
Result<std::string_view> find_header(std::span<const std::byte> head, uint64_t file_size,
                                     const std::string& source) {
  uint64_t length = 0;
  if (head.size() < sizeof(length)) {
    return Error::corrupt(source, fmt::format("is {} bytes, a safetensors file starts with an "
                                              "8-byte header length",
                                              head.size()));
  }
  std::memcpy(&length, head.data(), sizeof(length));
  if (length > file_size - sizeof(length)) {
    return Error::corrupt(
        source, fmt::format("says its header is {} bytes, the file is {}", length, file_size));
  }
  if (length > kSafetensorsHeaderLimit) {
    return Error::exhausted(source, fmt::format("says its header is {} bytes, the limit is {}",
                                                length, kSafetensorsHeaderLimit));
  }
  if (length > head.size() - sizeof(length)) {
    return Error::corrupt(
        source, fmt::format("ends at byte {} inside its header of {} bytes", head.size(), length));
  }
  const char* text = reinterpret_cast<const char*>(head.data()) + sizeof(length);
  if (length == 0 || text[0] != '{') {
    return Error::corrupt(source, "the header does not start with '{'");
  }
  return std::string_view(text, length);
}

}  // namespace

Result<std::vector<TableEntry>> parse_safetensors(std::span<const std::byte> head,
                                                  uint64_t file_size, const std::string& source) {
  check(file_size >= head.size(), "a file is not shorter than its beginning");
  const std::string_view header = TRY(find_header(head, file_size, source));
  simdjson::dom::parser parser;
  object root;
  // The parser copies the text, since what follows it in the mapping is not padding.
  const simdjson::error_code failure = parser.parse(header.data(), header.size()).get(root);
  if (failure != simdjson::SUCCESS) {
    return Error::corrupt(source, fmt::format("the header is not a JSON object: {}",
                                              simdjson::error_message(failure)));
  }
  const uint64_t data_begin = sizeof(uint64_t) + header.size();
  std::vector<TableEntry> entries;
  for (const auto& [name, value] : root) {
    if (name == "__metadata__") {
      TRY(check_metadata(value, source));
      continue;
    }
    entries.push_back(TRY(read_entry(name, value, data_begin, file_size, source)));
  }
  TRY(check_extents(entries, data_begin, file_size, Holes::refused, source));
  return entries;
}

}  // namespace deepinfer::weights
