#pragma once

// Mixture of experts, shared by V3, V3.2, V4 and V4.1: router, routed experts as grouped products,
// shared expert.
//
//   logits = router . h ;  (E, w) = route_row(logits)                       kernels/router.h
//   f(x; w) = down( w * silu(min(gate x, clamp)) * clamp(up x, -clamp, clamp) )
//   out = sum over E ascending of f_e(h; w_e), then + f_shared(h; 1)
// The routing weight multiplies before `down`. faithful: inputs of FP8 and FP4 products are rounded
// to q8 blocks (quantizer_block), products' outputs and the sum to bf16, as the official code does.
//
// Bits: a row's result depends on the row, its id and the weights only: rows are sorted by expert,
// each expert's rows are one segment of the activations, and a row adds up its experts in ascending
// order of their ids.
//
// Threads: forward() from one thread at a time, on the pool.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"
#include "kernels/router.h"
#include "models/experts/expert_source.h"
#include "models/matrix_loader.h"
#include "models/profile.h"
#include "weights/deepseek/deepseek_tensors.h"

namespace deepinfer::models {

struct MoeOptions {
  kernels::Target target;
  uint32_t quantizer_block = 0;  // of `faithful`: 32 (V4.1), 128 (V4); 0: no rounding (V3)
};

// One layer's router and shared expert; the routed experts live in an ExpertSource.
struct MoeLayer {
  kernels::RouterShape router_shape;
  float clamp = 0.0f;            // 0: none
  kernels::PackedMatrix router;  // [experts, hidden]
  std::vector<float> bias;       // [experts] or empty
  std::vector<float> bias_vl;    // [experts] or empty: of image positions
  std::vector<int32_t> by_id;    // [vocab][per_token] or empty
  ExpertMatrices shared;         // matrices without outputs: no shared expert
  size_t hidden = 0, width = 0, shared_width = 0;
  size_t source_layer = 0;  // of the ExpertSource
};

// What one row chose; filled by forward() when asked for, for tests and counters.
struct Routing {
  std::vector<int32_t> experts;  // [rows][per_token] ascending
  std::vector<float> weights;    // [rows][per_token]
};

class Moe {
 public:
  Moe(const MoeOptions& options, ThreadPool& pool);
  ~Moe();

  // Router and shared expert of one layer. An error names the tensor by `where`.
  static Result<MoeLayer> load(const weights::MoeTensors& tensors, const weights::MoeConfig& config,
                               kernels::RouterScore score, size_t hidden, size_t source_layer,
                               const std::string& where, MatrixLoader& loader);

  // h [rows][hidden] (normed) -> out [rows][hidden], overwritten. ids [rows]; image [rows] or
  // empty: 1 where bias_vl applies. `where` names the layer in errors: NaN or infinity, or an
  // expert that could not be read.
  Result<void> forward(const MoeLayer& layer, ExpertSource& experts, std::span<const float> h,
                       size_t rows, std::span<const int32_t> ids, std::span<const uint8_t> image,
                       float* out, const std::string& where, Profile& profile,
                       Routing* routing = nullptr);

  // A dense feed-forward part (the first layers of V3): every row through one expert of weight 1.
  Result<void> forward_dense(const ExpertMatrices& matrices, float clamp, std::span<const float> h,
                             size_t rows, float* out, const std::string& where, Profile& profile);

  // Forced routing for benchmarks: none, balanced (row r takes experts r*k .. +k-1 modulo E, rows
  // counted on from call to call of a layer), or imbalanced (all rows take the first per_token
  // experts); weights are equal then.
  enum class Force : uint8_t { none, balanced, imbalanced };
  void set_force(Force force);

  size_t bytes() const;  // workspace

 private:
  struct Work;
  struct Job;
  Result<void> route(const MoeLayer& layer, std::span<const float> h, size_t rows,
                     std::span<const int32_t> ids, std::span<const uint8_t> image,
                     const std::string& where, Profile& profile);
  void force_row(const MoeLayer& layer, uint64_t row, int32_t* chosen, float* weights) const;
  void round_inputs(std::span<const float> h, size_t rows, size_t hidden);
  // Sorts the (row, expert) pairs by expert: slots. Slots rows*per_token .. are one per row.
  void sort_slots(const MoeLayer& layer, size_t rows);
  size_t experts_of_part(size_t first) const;
  bool reads_rounded(const kernels::PackedMatrix& matrix) const;
  bool one_input(std::span<const Job> jobs) const;
  Result<void> run_jobs(std::span<const Job> jobs, float clamp, std::span<const float> h,
                        const std::string& where, Profile& profile);
  void gate_and_up(std::span<const Job> jobs, std::span<const float> h, Profile& profile);
  Result<void> activate(std::span<const Job> jobs, float clamp, const std::string& where);
  void down(std::span<const Job> jobs, Profile& profile);
  // out of every row += the results of its slots in [first, end), experts ascending.
  void add_results(size_t rows, size_t per_token, size_t hidden, size_t first, size_t end,
                   float* out);
  Result<void> finish(size_t rows, size_t hidden, float* out, const std::string& where);

  MoeOptions options_;
  ThreadPool& pool_;
  Force force_ = Force::none;
  std::unique_ptr<Work> work_;
};

}  // namespace deepinfer::models
