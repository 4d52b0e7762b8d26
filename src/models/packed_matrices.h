#pragma once

// Which tensors of a checkpoint `deepinfer pack` turns into panels: the matrices that the family's
// model multiplies by as a whole. Tables that are read by rows (embeddings, Engram), norms and
// small float tensors stay as they are.
//
// Threads: any.

#include <vector>

#include "base/result.h"
#include "kernels/isa.h"
#include "tensor/scaled_view.h"
#include "weights/checkpoint.h"

namespace deepinfer::models {

// Errors are those of reading the family's configuration and tensors.
Result<std::vector<ScaledView>> packed_matrices(const weights::Checkpoint& checkpoint,
                                                kernels::Target target);

}  // namespace deepinfer::models
