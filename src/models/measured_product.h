#pragma once

// Products with an entry in the profile: weight bytes once, two operations per weight and row.
//
// Threads: as kernels::matmul.

#include <span>

#include "base/thread_pool.h"
#include "kernels/matmul.h"
#include "models/profile.h"

namespace deepinfer::models {

// rows: that each product reads.
inline void measured_matmul(ThreadPool& pool, Profile& profile, Operation operation, size_t rows,
                            const kernels::Activations& activations,
                            std::span<const kernels::Product> products) {
  size_t bytes = 0;
  double operations = 0;
  for (const kernels::Product& product : products) {
    bytes += product.weights->bytes();
    operations += 2.0 * static_cast<double>(rows) *
                  static_cast<double>(product.weights->outputs()) *
                  static_cast<double>(product.weights->inputs());
  }
  const auto timer = profile.measure(operation, bytes, operations);
  kernels::matmul(pool, activations, products);
}

}  // namespace deepinfer::models
