#pragma once

// A short name for what a checkpoint holds, cheap enough for every start.
//
// XXH3-128 over every tensor's name, dtype and shape, and over samples of the data: 1 KiB at the
// beginning, at each third and at the end of at most 512 tensors, evenly spaced in the order of
// names (all of a tensor of 4 KiB or less). It tells checkpoints apart; it does not prove that
// every byte is intact, and it is no defence against someone who wants a collision. The same
// tensors in one file or in shards have the same id; the metadata does not enter.
//
// Threads: any.

#include <string>

#include "base/result.h"
#include "weights/checkpoint.h"

namespace deepinfer::weights {

// 32 hexadecimal digits. Fails (exhausted) only when there is no memory for the state.
Result<std::string> content_id(const Checkpoint& checkpoint);

}  // namespace deepinfer::weights
