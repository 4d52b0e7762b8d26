// Fuzzes the header of safetensors files: the input is a file, once as it is and once as the
// beginning of a file of a terabyte, so that tensors may lie beyond the input.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "weights/safetensors/safetensors.h"

using namespace deepinfer;
using namespace deepinfer::weights;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  for (const uint64_t file_size : {uint64_t{size}, size + (uint64_t{1} << 40)}) {
    const Result<std::vector<TableEntry>> table = parse_safetensors(bytes, file_size, "input");
    if (!table.ok()) {
      check(!table.error().text().empty());
      continue;
    }
    uint64_t total = 0;
    for (const TableEntry& entry : table.value()) {
      check(entry.begin <= file_size && entry.bytes <= file_size - entry.begin);
      total += entry.bytes;
    }
    check(total < file_size);
  }
  return 0;
}
