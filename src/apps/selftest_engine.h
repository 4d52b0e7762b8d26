#pragma once

// The paths of `selftest` through the engine: tokens and log-probabilities of one prompt must be
// the same bits alone and together, planned ahead or not, resumed or cold, after giving way, with
// drafts and as one of several choices. A bounded replay is approximate: its deviation is stated.
//
// Threads: the main thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/selftest_paths.h"
#include "engine/engine.h"

namespace deepinfer::apps {

class EnginePaths {
 public:
  using Report = std::function<void(const Comparison&)>;
  // Ids are repeated as often as the longest prompt needs. Model and pool must outlive it.
  EnginePaths(models::Model& model, ThreadPool& pool, kernels::Isa isa,
              const std::vector<int32_t>& ids, Report report);
  Result<void> run_all();

 private:
  struct Text {
    std::vector<int32_t> ids;
    std::vector<float> logprobs;  // [ids]
    engine::RequestStats stats;
  };
  Result<std::unique_ptr<engine::Engine>> open(engine::LoopMode mode, bool prefix_cache,
                                               size_t pages) const;
  // Texts of the requests, choice after choice, in their order.
  Result<std::vector<Text>> run(engine::Engine& engine,
                                std::vector<engine::Request> requests) const;
  Result<Text> cold(engine::Request request) const;
  engine::Request request(size_t prompt, bool seeded) const;
  void compare(std::string path, const Text& seen, const Text& wanted, bool happened = true) const;

  Result<void> compare_company() const;
  Result<void> compare_resumes() const;
  Result<void> compare_preemption() const;
  Result<void> compare_drafts() const;
  Result<void> compare_choices() const;
  Result<void> compare_replay() const;

  models::Model& model_;
  ThreadPool& pool_;
  kernels::Isa isa_;
  std::vector<int32_t> ids_;
  size_t context_;  // tokens of prompt and answer that the paths use
  Report report_;
};

}  // namespace deepinfer::apps
