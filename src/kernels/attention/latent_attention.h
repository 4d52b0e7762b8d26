#pragma once

// Attention of many query heads over one shared row of keys and values per token or entry (the
// latent attention of DeepSeek V3 in absorbed form, V3.2, V4 and V4.1).
//
//   a_n = scale * q_h . key_n            n over: window rows, ascending position, then entries
//   out_h = sum_n exp(a_n - M) value_n / (sum_n exp(a_n - M) + exp(sink_h - M)),  M = max_n a_n
//   key_n = the whole row [dim], value_n = its first value_dim values. No visible key: out is 0.
// The sink is not scaled and has no value. faithful: exp(a_n - M) is rounded to bf16 before the
// value product, the denominator is not.
//
// Bits: a query's result depends on the query, the list of its rows and their bytes only, never on
// other queries, threads or chunks; all instruction sets but ref give the same. Dot products run k
// ascending; keys are taken in spans of kLatentSpan rows from the start of the list, each with its
// own maximum M, n ascending inside, and the spans are combined in order. A list of one span has
// the true maximum, so that faithful rounds there exactly what the formula says.
//
// Threads: uses the pool, from one thread at a time.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/latent_rows.h"
#include "kernels/isa.h"

namespace deepinfer::kernels {

// Above what any of the families selects with its window (V3.2: 2048).
inline constexpr size_t kLatentSpan = 2048;

struct LatentShape {
  size_t heads = 0;
  size_t dim = 0;        // of a query head and of a row; multiple of 8
  size_t value_dim = 0;  // <= dim; multiple of 8
  LatentFormat window;   // of window rows, width == dim
  LatentFormat entries;  // of entry rows, width == dim
  size_t entries_per_page = 0;
  float scale = 0.0f;
  const float* sink = nullptr;  // [heads] or null
  bool faithful = false;
};

struct LatentQuery {
  const float* query = nullptr;  // [heads][dim]
  float* out = nullptr;          // [heads][value_dim]

  // Window rows of positions [window_first, window_end). Rows of this step lie in `fresh`, position
  // fresh_first first; older ones in the ring, position p in slot p % ring_rows.
  uint64_t window_first = 0;
  uint64_t window_end = 0;
  const std::byte* ring = nullptr;
  size_t ring_rows = 0;
  const std::byte* fresh = nullptr;
  uint64_t fresh_first = 0;

  // Entry j lies in pages[j / entries_per_page] at row j % entries_per_page.
  const std::byte* const* pages = nullptr;
  const uint32_t* selected = nullptr;  // [entry_count] ascending; null: 0 .. entry_count - 1
  size_t entry_count = 0;
};

// out of different queries must not overlap.
void latent_attention(ThreadPool& pool, Isa isa, const LatentShape& shape,
                      std::span<const LatentQuery> queries, AttentionWorkspace& workspace);

}  // namespace deepinfer::kernels
