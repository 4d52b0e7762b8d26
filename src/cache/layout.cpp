#include "cache/layout.h"

#include "base/check.h"

namespace deepinfer::cache {

size_t CacheLayout::page_offset(size_t index) const {
  check(index <= growing.size(), "growing stream index");
  size_t offset = 0;
  for (size_t i = 0; i < index; ++i) offset += growing[i].bytes_per_page;
  return offset;
}

size_t CacheLayout::frontier_bytes() const {
  size_t bytes = 0;
  for (const FrontierStream& stream : frontier) bytes += stream.bytes_per_sequence;
  return bytes;
}

}  // namespace deepinfer::cache
