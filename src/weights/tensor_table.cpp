#include "weights/tensor_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace deepinfer::weights {
namespace {

constexpr size_t kPrintableBytes = 120;

Result<void> check_unique_names(std::span<const TableEntry> entries, const std::string& source) {
  std::vector<const TableEntry*> by_name;
  by_name.reserve(entries.size());
  for (const TableEntry& entry : entries) by_name.push_back(&entry);
  std::sort(by_name.begin(), by_name.end(),
            [](const TableEntry* a, const TableEntry* b) { return a->name < b->name; });
  for (size_t i = 1; i < by_name.size(); ++i) {
    if (by_name[i - 1]->name != by_name[i]->name) continue;
    return Error::corrupt(tensor_thing(source, by_name[i]->name),
                          fmt::format("is in the table twice, at bytes {} and {}",
                                      by_name[i - 1]->begin, by_name[i]->begin));
  }
  return {};
}

std::string extent_text(const TableEntry& entry) {
  return fmt::format("bytes {}..{}", entry.begin, entry.end());
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kPrintableBytes)) {
    if (c >= 0x20 && c < 0x7f) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > kPrintableBytes) out += "...";
  return out;
}

std::string tensor_thing(const std::string& source, std::string_view name) {
  return fmt::format("{}: tensor {}", source, printable(name));
}

Result<uint64_t> tensor_bytes(DType dtype, const Shape& shape, const std::string& thing) {
  const DTypeInfo& info = dtype_info(dtype);
  if (shape.row_elements() % info.block_elements != 0) {
    return Error::corrupt(thing, fmt::format("has rows of {} values, {} comes in blocks of {}",
                                             shape.row_elements(), info.name, info.block_elements));
  }
  const uint64_t blocks = shape.elements() / info.block_elements;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(blocks, info.block_bytes, &bytes)) {
    return Error::corrupt(
        thing, fmt::format("of shape {} and dtype {} is beyond 63 bits", shape.text(), info.name));
  }
  return static_cast<uint64_t>(bytes);
}

Result<void> check_extents(std::span<const TableEntry> entries, uint64_t data_begin,
                           uint64_t file_size, Holes holes, const std::string& source) {
  TRY(check_unique_names(entries, source));
  std::vector<const TableEntry*> by_place;
  by_place.reserve(entries.size());
  for (const TableEntry& entry : entries) by_place.push_back(&entry);
  std::sort(by_place.begin(), by_place.end(), [](const TableEntry* a, const TableEntry* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end() < b->end();
  });

  const TableEntry* last = nullptr;
  uint64_t covered = data_begin;
  for (const TableEntry* entry : by_place) {
    if (entry->begin < data_begin || entry->end() > file_size) {
      return Error::corrupt(tensor_thing(source, entry->name),
                            fmt::format("{} lie outside the file's data, bytes {}..{}",
                                        extent_text(*entry), data_begin, file_size));
    }
    if (last != nullptr && entry->begin < covered && entry->bytes > 0) {
      return Error::corrupt(tensor_thing(source, entry->name),
                            fmt::format("{} overlap tensor {} at {}", extent_text(*entry),
                                        printable(last->name), extent_text(*last)));
    }
    if (holes == Holes::refused && entry->begin != covered) {
      return Error::corrupt(tensor_thing(source, entry->name),
                            fmt::format("{} do not follow the tensor before it, which ends at {}",
                                        extent_text(*entry), covered));
    }
    if (last == nullptr || entry->end() > covered) last = entry;
    covered = std::max(covered, entry->end());
  }
  if (holes == Holes::refused && covered != file_size) {
    return Error::corrupt(
        source, fmt::format("the last tensor ends at byte {}, the file at {}", covered, file_size));
  }
  return {};
}

}  // namespace deepinfer::weights
