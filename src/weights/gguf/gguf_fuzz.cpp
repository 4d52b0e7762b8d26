// Fuzzes the head of GGUF files: the input is a file, once as it is and once as the beginning of a
// file of a terabyte, so that tensors may lie beyond the input.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "weights/config_reader.h"
#include "weights/gguf/gguf.h"
#include "weights/gguf/gguf_deepseek.h"

using namespace deepinfer;
using namespace deepinfer::weights;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  for (const uint64_t file_size : {uint64_t{size}, size + (uint64_t{1} << 40)}) {
    const Result<GgufHead> head = parse_gguf(bytes, file_size, "input");
    if (!head.ok()) {
      check(!head.error().text().empty());
      continue;
    }
    for (const TableEntry& entry : head.value().tensors) {
      check(entry.begin <= file_size && entry.bytes <= file_size - entry.begin);
      check(entry.begin % head.value().alignment == 0);
    }
    (void)parse_gguf_llama_config(head.value().metadata, "input");
    (void)parse_gguf_deepseek_v3_config(head.value().metadata, "input");
    (void)parse_gguf_deepseek_v4_config(head.value().metadata, "input");
  }
  return 0;
}
