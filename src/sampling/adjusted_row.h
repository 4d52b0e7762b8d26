#pragma once

// Adjusted row: the logits of a row after bias, penalties, bans and mask.
//
// Threads: pure functions; a Workspace belongs to one caller at a time.

#include <cstddef>
#include <span>

#include "base/result.h"
#include "sampling/sampler.h"

namespace deepinfer::sampling {

// row.logits, or workspace.logits when something changes them. Errors as sample() says, without
// a look at the values. seen ids are checked to be in the vocabulary.
Result<std::span<const float>> adjusted_row(const SampleRow& row, const Parameters& parameters,
                                            Workspace& workspace);

// That the ids of row and parameters are in the vocabulary and the mask fits.
Result<void> check_row(const SampleRow& row, const Parameters& parameters);

// Index of the highest logit, the lowest of equals. `what` names the logits in errors (internal):
// a NaN or +infinity, with its id.
Result<size_t> highest(kernels::Isa isa, std::span<const float> logits, const char* what);

// What forbids ids, for an error: "a mask allows 3 ids, 5 are banned".
std::string bans_text(const SampleRow& row, const Parameters& parameters);

}  // namespace deepinfer::sampling
