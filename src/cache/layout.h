#pragma once

// CacheLayout: what one sequence keeps, declared by the model and opaque to everyone else.
//
//   growing streams: entries that every token adds to (keys and values, index keys), stored in
//   pages
//     of 128 tokens; a page holds the 128 tokens of every growing stream, one stream after the
//     other.
//   frontier streams: a fixed number of bytes per sequence (window rings, pending state). The
//     classic families have none.
//
// Threads: a plain value.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace deepinfer::cache {

inline constexpr size_t kTokensPerPage = 128;

// Pages that `tokens` tokens take.
inline size_t pages_for(uint64_t tokens) {
  return static_cast<size_t>((tokens + kTokensPerPage - 1) / kTokensPerPage);
}

struct GrowingStream {
  std::string name;           // "layer 3 keys and values"
  size_t bytes_per_page = 0;  // of 128 tokens; multiple of 64
};

struct FrontierStream {
  std::string name;
  size_t bytes_per_sequence = 0;
};

struct CacheLayout {
  std::vector<GrowingStream> growing;
  std::vector<FrontierStream> frontier;

  // Byte offset of growing stream `index` in a page; the sum of all for index == growing.size().
  size_t page_offset(size_t index) const;
  size_t page_bytes() const { return page_offset(growing.size()); }
  size_t frontier_bytes() const;
};

}  // namespace deepinfer::cache
