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

// Decoding with weights that stream: what the disk had to do meanwhile.
struct StreamSample {
  double tokens_per_second = 0;
  double hit_rate = 0;         // of experts asked for
  double bytes_per_token = 0;  // read from disk
  double wait_share = 0;       // of the time
};
Result<StreamSample> sample_stream(llm::Llm& llm);

// Bytes per second of the files that hold the weights, read past the page cache in random pieces
// of piece_bytes (less when no file is as large), `total_bytes` in all.
Result<double> sample_disk(const weights::Checkpoint& checkpoint, size_t piece_bytes,
                           size_t total_bytes, uint64_t seed);

// Opening a model until it could compute.
struct StartSample {
  double seconds = 0;
  uint64_t file_bytes = 0;
  uint64_t resident_bytes = 0;  // of the process, afterwards
  uint64_t stated_bytes = 0;    // what the model says it holds
};
Result<StartSample> sample_start(const std::string& path, const llm::LlmOptions& options);

}  // namespace deepinfer::apps
