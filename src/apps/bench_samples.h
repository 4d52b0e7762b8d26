#pragma once

// Single samples of `bench`: what one of them computes, timed.
//
// Threads: the main thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "llm/llm.h"

namespace deepinfer::apps {

inline constexpr size_t kDecodeTokens = 64;
inline constexpr size_t kPrefillTokens = 512;

// Ids spread over the vocabulary, the first one BOS where there is one.
std::vector<int32_t> spread_ids(const weights::ModelConfig& config, size_t count);

// tokens/s of one prompt of kPrefillTokens (or the context), through the engine.
Result<double> sample_prefill(llm::Llm& llm);
// tokens/s of kDecodeTokens from an empty context, through the engine.
Result<double> sample_decode(llm::Llm& llm);
// tokens/s of `tokens` single rows after `context` positions that nobody computed.
Result<double> sample_decode_at(models::Model& model, uint64_t context, size_t tokens);

}  // namespace deepinfer::apps
