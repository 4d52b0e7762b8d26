#pragma once

// Scenario: what happens to an engine in a simulation, all of it drawn from one seed: its options
// and family of model, who asks for what when, what is cancelled, which steps fail.
//
//   Scenario scenario = make_scenario(42, 2000, {});
//   std::string lines = scenario.text();   // to look at one that fails
//
// Threads: plain values.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/simulated_model.h"

namespace deepinfer::engine {

struct Arrival {
  size_t step = 0;
  Request request;
  // The prompt begins with all that this earlier arrival (an index) has by then, cut to
  // `follow_tokens`: the next turn of a conversation, an edited or repeated one.
  std::optional<uint64_t> follows;  // id of a request
  size_t follow_tokens = SIZE_MAX;
  bool invalid = false;  // add() must refuse it
};

struct Cancellation {
  size_t step = 0;
  uint64_t request = 0;
};

struct Fault {
  size_t step = 0;
  size_t sequences = 1;  // the first step from there on with that many fails
};

struct Scenario {
  uint64_t seed = 0;
  size_t steps = 0;
  SimulatedModel::Family family;
  size_t context = 600;
  Engine::Options options;
  std::vector<Arrival> arrivals;  // by step
  std::vector<Cancellation> cancellations;
  std::vector<Fault> faults;

  std::string text() const;
};

struct ScenarioLimits {
  std::optional<LoopMode> mode;  // else drawn
  std::optional<size_t> family;  // index below scenario_families(); else drawn
};

size_t scenario_families();
Scenario make_scenario(uint64_t seed, size_t steps, const ScenarioLimits& limits);

}  // namespace deepinfer::engine
