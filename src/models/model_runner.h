#pragma once

// ModelRunner: a checkpoint opened with a pool of its own and pages, for the tests of this folder.
//
//   ModelRunner runner = ModelRunner::open(path, {.isa = kernels::Isa::ref});
//   std::vector<float> logits = runner.logits(ids, 7);  // [ids][vocab], in chunks of 7
//
// A failure to open ends the test program: the tests cannot say anything then.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "models/model.h"

namespace deepinfer::models {

template <class T>
T value_or_die(Result<T> result) {
  if (!result.ok()) {
    std::cerr << result.error().text() << "\n";
    std::exit(1);
  }
  return std::move(result).value();
}

inline std::string tiny_model_path(const std::string& name) {
  return std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/llama/" + name;
}

// The real model, which tools/fetch_data.py puts there; nullopt when it is missing.
inline std::optional<std::string> smollm2_path() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::string folder =
      cache != nullptr && *cache != '\0' ? cache : std::string(home ? home : "") + "/.cache";
  std::string path = folder + "/deepinfer/smollm2-135m-instruct-q4_1.gguf";
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}
inline constexpr const char* kFetchSmollm2 =
    "SmolLM2 is not in the cache: run tools/fetch_data.py smollm2";

inline std::vector<kernels::Isa> isas_of_this_machine() {
  std::vector<kernels::Isa> isas;
  for (const char* name : {"ref", "avx2", "emulated512", "avx512"}) {
    if (Result<kernels::Isa> isa = kernels::choose_isa(name); isa.ok()) isas.push_back(isa.value());
  }
  return isas;
}

struct RunnerOptions {
  kernels::Isa isa = kernels::Isa::ref;
  kernels::Numerics numerics = kernels::Numerics::exact;
  KvMode kv = KvMode::f32;
  size_t threads = 1;
  size_t max_rows = 64;
  size_t pages = 16;
  uint64_t stream_bytes = 0;
};

class ModelRunner {
 public:
  // The next ids of one sequence.
  struct Feed {
    cache::SequenceCache* cache = nullptr;
    std::vector<int32_t> ids;
    bool want_all = true;      // else the last row only
    SequenceStart start = {};  // rows below start.decoder want no logits
  };

  static ModelRunner open(const std::string& path, const RunnerOptions& options) {
    ModelRunner runner;
    runner.checkpoint_ =
        std::make_unique<weights::Checkpoint>(value_or_die(weights::Checkpoint::open(path)));
    runner.threads_ = value_or_die(ThreadPool::create({.threads = options.threads}));
    runner.model_ = value_or_die(open_model(*runner.checkpoint_,
                                            {.target = {options.isa, options.numerics},
                                             .kv = options.kv,
                                             .max_rows = options.max_rows,
                                             .stream_bytes = options.stream_bytes},
                                            *runner.threads_));
    runner.pages_ =
        value_or_die(cache::PagePool::create(runner.model_->cache_layout(), options.pages));
    return runner;
  }

  Model& model() { return *model_; }
  size_t vocab() const { return model_->config().vocab; }
  cache::SequenceCache new_sequence() { return cache::SequenceCache(pages_.get()); }

  // One forward pass; wanted logits [rows][vocab] in order, or the model's error.
  Result<std::vector<float>> try_step(const std::vector<Feed>& feeds) {
    std::vector<int32_t> ids;
    std::vector<uint64_t> positions;
    std::vector<uint32_t> row_start = {0};
    std::vector<uint8_t> want;
    std::vector<cache::SequenceCache*> caches;
    std::vector<SequenceStart> starts;
    for (const Feed& feed : feeds) {
      const uint64_t first = feed.cache->length();
      value_or_die_void(feed.cache->reserve(first + feed.ids.size()));
      for (size_t i = 0; i < feed.ids.size(); ++i) {
        ids.push_back(feed.ids[i]);
        positions.push_back(first + i);
        const bool wanted = feed.want_all || i + 1 == feed.ids.size();
        want.push_back(wanted && first + i >= feed.start.decoder ? 1 : 0);
      }
      row_start.push_back(static_cast<uint32_t>(ids.size()));
      caches.push_back(feed.cache);
      starts.push_back(feed.start);
    }
    TRY(model_->forward({ids, positions, row_start, want, caches, starts}, output_));
    for (const Feed& feed : feeds) feed.cache->set_length(feed.cache->length() + feed.ids.size());
    const float* logits = output_.row(0, vocab());
    return std::vector<float>(logits, logits + output_.wanted_rows * vocab());
  }
  std::vector<float> step(const std::vector<Feed>& feeds) { return value_or_die(try_step(feeds)); }

  // Logits of every position [ids][vocab], fed in chunks.
  std::vector<float> logits(std::span<const int32_t> ids, size_t chunk) {
    cache::SequenceCache sequence = new_sequence();
    std::vector<float> all;
    for (size_t first = 0; first < ids.size(); first += chunk) {
      const size_t count = std::min(chunk, ids.size() - first);
      const std::vector<float> part = step({{&sequence,
                                             {ids.begin() + static_cast<long>(first),
                                              ids.begin() + static_cast<long>(first + count)}}});
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  // The `count` most likely continuations, one after the other.
  std::vector<int32_t> greedy(std::span<const int32_t> prompt, size_t count) {
    cache::SequenceCache sequence = new_sequence();
    std::vector<int32_t> next(prompt.begin(), prompt.end()), out;
    while (out.size() < count) {
      const std::vector<float> row = step({{&sequence, next, false}});
      next = {static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin())};
      out.push_back(next[0]);
    }
    return out;
  }

 private:
  ModelRunner() = default;
  static void value_or_die_void(const Result<void>& result) {
    if (result.ok()) return;
    std::cerr << result.error().text() << "\n";
    std::exit(1);
  }

  // In the order of what leans on what.
  std::unique_ptr<weights::Checkpoint> checkpoint_;
  std::unique_ptr<ThreadPool> threads_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<cache::PagePool> pages_;
  StepOutput output_;
};

}  // namespace deepinfer::models
