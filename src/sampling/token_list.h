#pragma once

// Token list: ids as an operator writes them, e.g. the ids that are never sampled.
//
//   "0..3,7,10..12" is 0 1 2 3 7 10 11 12: numbers and ranges with both ends, strictly increasing,
//   no blanks. Empty text is no id. Source: spec deepinfer_engine.md 3.1.
//
// Threads: any.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deepinfer::sampling {

// Ids must be below `vocab` (at most 2^24), which bounds the result. Errors (invalid) name `what`
// and the place in the text.
Result<std::vector<int32_t>> parse_token_list(std::string_view what, std::string_view text,
                                              size_t vocab);

}  // namespace deepinfer::sampling
