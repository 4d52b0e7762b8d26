// Fuzzes the header of packed files: the input is a file, once as it is and once as the beginning
// of a file of a terabyte, so that tensors may lie beyond the input. What is accepted is written
// again and must be read as the same.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "weights/packed/packed.h"

using namespace deepinfer;
using namespace deepinfer::weights;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  for (const uint64_t file_size : {uint64_t{size}, size + (uint64_t{1} << 40)}) {
    const Result<PackedHeader> header = parse_packed(bytes, file_size, "input");
    if (!header.ok()) {
      check(!header.error().text().empty());
      continue;
    }
    for (const PackedEntry& entry : header.value().entries) {
      check(entry.table.begin <= file_size && entry.table.bytes <= file_size - entry.table.begin);
    }
    const std::string text = packed_header_text(header.value());
    const Result<PackedHeader> again =
        parse_packed(std::as_bytes(std::span(text)), file_size + text.size(), "input");
    // Written out, a header may reach into its own tensors, which is refused.
    if (!again.ok()) continue;
    check(again.value().entries.size() == header.value().entries.size());
    check(packed_header_text(again.value()) == text);
  }
  return 0;
}
