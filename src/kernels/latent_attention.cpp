#include "kernels/latent_attention.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/latent_attention_kernel.h"

namespace deepinfer::kernels {
namespace {

void check_shape(const LatentShape& shape) {
  check(shape.heads > 0, "latent attention without heads");
  check(shape.dim > 0 && shape.dim % 8 == 0, "dim must be a multiple of 8");
  check(shape.value_dim <= shape.dim && shape.value_dim % 8 == 0,
        "value_dim must be a multiple of 8 and at most dim");
}

void latent_attention_ref(ThreadPool& pool, const LatentShape& shape,
                          std::span<const LatentQuery> queries, AttentionWorkspace& workspace) {
  size_t rows = 0;
  for (const LatentQuery& query : queries) {
    rows = std::max(rows, LatentList(shape, query).size());
  }
  workspace.reserve(pool.thread_count(), ref::latent_scratch_doubles(shape, rows) * sizeof(double),
                    0);
  pool.run(queries.size() * shape.heads, [&](size_t chunk, size_t worker) {
    ref::latent_attention_head(shape, queries[chunk / shape.heads], chunk % shape.heads,
                               reinterpret_cast<double*>(workspace.thread(worker)));
  });
}

}  // namespace

void latent_attention(ThreadPool& pool, Isa, const LatentShape& shape,
                      std::span<const LatentQuery> queries, AttentionWorkspace& workspace) {
  check_shape(shape);
  latent_attention_ref(pool, shape, queries, workspace);
}

}  // namespace deepinfer::kernels
