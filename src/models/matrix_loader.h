#pragma once

// MatrixLoader: checkpoint tensors to what forward() reads, with progress, one arena, one list of
// kernel choices. Shared by the DeepSeek families.
//
// Threads: the loading thread; packing uses the pool.

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/matmul.h"
#include "models/model.h"
#include "tensor/arena.h"
#include "tensor/scaled_view.h"

namespace deepinfer::models {

class MatrixLoader {
 public:
  // total_bytes: of all tensors in the file that will be asked for; progress counts towards it.
  // The pool and the arena must outlive the loader, the arena its matrices.
  MatrixLoader(kernels::Target target, ThreadPool& pool, Arena& arena, Progress progress,
               size_t total_bytes);

  // Packs; checks scales and codes first. Errors name the matrix by `name` ("layer 3 attention
  // q_b").
  Result<kernels::PackedMatrix> matrix(const ScaledView& view, const std::string& name);
  Result<kernels::PackedMatrix> matrix(const TensorView& view, const std::string& name);
  // All values as floats, finite or an error.
  Result<std::vector<float>> floats(const TensorView& view, const std::string& name);
  Result<std::vector<int32_t>> integers(const TensorView& view, const std::string& name);

  const kernels::Target& target() const { return target_; }
  std::vector<kernels::Choice> choices() const;  // one per kind of product
  size_t bytes() const { return bytes_; }        // packed or mapped so far

 private:
  void note(size_t file_bytes);
  Result<void> note_choice(const TensorView& view, const std::string& name);

  kernels::Target target_;
  ThreadPool& pool_;
  Arena& arena_;
  Progress progress_;
  size_t total_bytes_ = 0;
  size_t done_bytes_ = 0;
  size_t bytes_ = 0;
  std::map<std::string, kernels::Choice> choices_;
};

}  // namespace deepinfer::models
