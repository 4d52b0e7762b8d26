#pragma once

// EngineLoad: requests through an engine of its own, and when each of their tokens came; for the
// benchmarks of the engine.
//
//   EngineLoad load = TRY(EngineLoad::create(llm.model(), options));
//   TRY(load.add({.id = 1, .prompt = ids, .max_tokens = 64, .ignore_eos = true}));
//   TRY(load.finish());
//   load.track(1).token_ns ...
//
// Threads: the main thread.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace deepinfer::apps {

class EngineLoad {
 public:
  struct Track {
    int64_t added_ns = 0;
    std::vector<int64_t> token_ns;  // [tokens], of system_clock()
    engine::RequestStats stats;     // when it ended
  };

  static Result<EngineLoad> create(models::Model& model, const engine::Engine::Options& options);

  Result<void> add(engine::Request request);
  // Fails when a request does: a benchmark has no use for it.
  Result<void> step();
  // Steps until nothing is left.
  Result<void> finish();
  bool busy() const { return engine_->busy(); }
  const Track& track(uint64_t request) const { return tracks_.at(request); }
  const engine::Engine& engine() const { return *engine_; }

 private:
  explicit EngineLoad(std::unique_ptr<engine::Engine> engine) : engine_(std::move(engine)) {}

  std::unique_ptr<engine::Engine> engine_;
  std::map<uint64_t, Track> tracks_;
  std::string failure_;
};

// Milliseconds between neighbouring tokens, of all these requests, ascending.
std::vector<double> token_gaps_ms(const EngineLoad& load, const std::vector<uint64_t>& requests);
// The value below which the share q of the ascending values lies.
double quantile(const std::vector<double>& ascending, double q);

}  // namespace deepinfer::apps
