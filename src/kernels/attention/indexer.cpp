#include "kernels/attention/indexer.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/attention/indexer_kernel.h"
#include "tensor/tensor.h"

namespace deepinfer::kernels {
namespace {

// Entries of a chunk of work. Results do not depend on it.
constexpr size_t kSpanEntries = 256;

const IndexKernel& kernel_of(Isa isa) {
  switch (isa) {
    case Isa::ref:
      break;
    case Isa::avx2:
      return avx2::index_kernel();
    case Isa::avx512:
      return avx512::index_kernel();
    case Isa::emulated512:
      return emulated512::index_kernel();
  }
  return ref::index_kernel();
}

// The queries as codes, for bodies that multiply codes.
class EncodedQueries {
 public:
  EncodedQueries(ThreadPool& pool, const IndexKernel& kernel, const IndexShape& shape,
                 std::span<const IndexQuery> queries) {
    if (kernel.encode_query == nullptr || shape.keys.code != LatentCode::q4u) return;
    code_words_ = shape.heads * shape.keys.width / 4;
    blocks_ = shape.heads * shape.keys.width / kIndexBlock;
    words_.resize(queries.size() * (code_words_ + blocks_));
    scales_.resize(queries.size() * blocks_);
    const auto encode = [&](size_t q, size_t) {
      int32_t* words = words_.data() + q * (code_words_ + blocks_);
      kernel.encode_query(shape, queries[q].query, words, words + code_words_,
                          scales_.data() + q * blocks_);
    };
    if (queries.size() == 1) {
      encode(0, 0);
      return;
    }
    pool.run(queries.size(), encode);
  }

  IndexCodes of(size_t q) const {
    if (words_.empty()) return {};
    const int32_t* words = words_.data() + q * (code_words_ + blocks_);
    return {.codes = words, .offsets = words + code_words_, .scales = scales_.data() + q * blocks_};
  }

 private:
  size_t code_words_ = 0;
  size_t blocks_ = 0;
  std::vector<int32_t> words_;  // [queries][code_words + blocks]
  std::vector<float> scales_;   // [queries][blocks]
};

void check_shape(const IndexShape& shape) {
  check(shape.entries_per_page > 0, "index keys need entries in a page");
  switch (shape.keys.code) {
    case LatentCode::f32:
      return;
    case LatentCode::bf16:
      return check(shape.keys.width % 2 == 0, "bf16 index keys of an odd width");
    case LatentCode::q4u:
      return check(shape.keys.width % kIndexBlock == 0, "q4u index keys in blocks of 32");
    default:
      check(false, "index keys are f32, bf16 or q4u");
  }
}

}  // namespace

void index_scores(ThreadPool& pool, Isa isa, const IndexShape& shape,
                  std::span<const IndexQuery> queries) {
  check_shape(shape);
  const IndexKernel& kernel = kernel_of(isa);
  std::vector<size_t> first_span(queries.size() + 1, 0);  // of each query, in the list of all
  for (size_t q = 0; q < queries.size(); ++q) {
    const size_t spans = (queries[q].visible + kSpanEntries - 1) / kSpanEntries;
    first_span[q + 1] = first_span[q] + spans;
  }
  if (first_span.back() == 0) return;
  const EncodedQueries encoded(pool, kernel, shape, queries);
  const size_t scratch_bytes = (kernel.scratch_bytes(shape) + 63) / 64 * 64;
  Buffer scratch(pool.thread_count() * scratch_bytes);
  pool.run(first_span.back(), [&](size_t chunk, size_t worker) {
    const auto after = std::upper_bound(first_span.begin(), first_span.end(), chunk);
    const size_t q = static_cast<size_t>(after - first_span.begin()) - 1;
    const size_t first = (chunk - first_span[q]) * kSpanEntries;
    kernel.scores({.shape = &shape,
                   .query = &queries[q],
                   .codes = encoded.of(q),
                   .row_bytes = shape.keys.row_bytes(),
                   .first = first,
                   .count = std::min(kSpanEntries, queries[q].visible - first)},
                  scratch.data() + worker * scratch_bytes);
  });
}

}  // namespace deepinfer::kernels
