#include "kernels/indexer.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/indexer_kernel.h"
#include "tensor/tensor.h"

namespace deepinfer::kernels {
namespace {

// Entries of a chunk of work. Results do not depend on it.
constexpr size_t kSpanEntries = 256;

const IndexKernel& kernel_of(Isa) { return ref::index_kernel(); }

}  // namespace

void index_scores(ThreadPool& pool, Isa isa, const IndexShape& shape,
                  std::span<const IndexQuery> queries) {
  check(shape.entries_per_page > 0, "index keys need entries in a page");
  const IndexKernel& kernel = kernel_of(isa);
  std::vector<size_t> first_span(queries.size() + 1, 0);  // of each query, in the list of all
  for (size_t q = 0; q < queries.size(); ++q) {
    const size_t spans = (queries[q].visible + kSpanEntries - 1) / kSpanEntries;
    first_span[q + 1] = first_span[q] + spans;
  }
  if (first_span.back() == 0) return;
  const size_t scratch_bytes = (kernel.scratch_bytes(shape) + 63) / 64 * 64;
  Buffer scratch(pool.thread_count() * scratch_bytes);
  pool.run(first_span.back(), [&](size_t chunk, size_t worker) {
    const auto after = std::upper_bound(first_span.begin(), first_span.end(), chunk);
    const size_t q = static_cast<size_t>(after - first_span.begin()) - 1;
    const size_t first = (chunk - first_span[q]) * kSpanEntries;
    kernel.scores({.shape = &shape,
                   .query = &queries[q],
                   .codes = {},
                   .row_bytes = shape.keys.row_bytes(),
                   .first = first,
                   .count = std::min(kSpanEntries, queries[q].visible - first)},
                  scratch.data() + worker * scratch_bytes);
  });
}

}  // namespace deepinfer::kernels
