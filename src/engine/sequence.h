#pragma once

// Sequence: one accepted request on its way through the engine.
//
// Invariants
//   1. ids = prompt, then output; what the cache holds is ids[0 .. cached).
//   2. cache is there exactly while the sequence runs; its length is `cached`.
//   3. While running, pending() >= 1: the last id always waits to be computed.

#include <cstdint>
#include <optional>
#include <vector>

#include "cache/page_pool.h"
#include "engine/chunk_cut.h"
#include "engine/engine.h"
#include "models/model.h"

namespace deepinfer::engine {

struct Sequence {
  Request request;
  uint64_t arrival = 0;      // order of add()
  std::vector<int32_t> ids;  // prompt and output
  size_t output_limit = 0;   // tokens that may still be generated, from max_tokens and the context
  size_t scored = 1;         // prompt ids [1, scored) were reported
  std::vector<PromptSpan> spans;  // of the images
  bool alone = false;             // runs in steps of its own: it may have made one fail
  bool waits_for_span = false;    // the last step had no room for the next image
  std::optional<cache::SequenceCache> cache;
  models::SequenceStart start;  // set when it begins to run, for as long as it does

  int64_t added_ns = 0;
  int64_t first_token_ns = 0;
  int64_t last_token_ns = 0;

  size_t prompt_size() const { return request.prompt.size(); }
  size_t output_size() const { return ids.size() - prompt_size(); }
  size_t cached() const { return cache ? static_cast<size_t>(cache->length()) : 0; }
  size_t pending() const { return ids.size() - cached(); }

  // The row that stands for an image's position; null: text.
  const float* embedding(size_t position) const {
    for (const PromptImage& image : request.images) {
      if (position < image.start) break;
      if (position - image.start < image.embeddings.size()) {
        return image.embeddings[position - image.start];
      }
    }
    return nullptr;
  }

  // Are the logits of the row at `position` read?
  bool wants_logits(size_t position) const {
    const bool scores =
        request.want_prompt_logprobs && position + 1 >= scored && position + 1 < prompt_size();
    const bool samples = position + 1 == ids.size() && output_limit > output_size();
    return scores || samples;
  }
};

}  // namespace deepinfer::engine
