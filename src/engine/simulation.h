#pragma once

// Simulation: an engine under everything that a scenario holds, watched step by step; and how a
// scenario that fails is made small.
//
//   SimulationResult result = simulate(make_scenario(seed, 2000, {}));
//   if (!result.ok()) std::puts(shrink(scenario, result).report().c_str());
//
// After every step: the engine's own invariants (page census, reference counts, queues), the
// ledger's (ledger.h), and Limits. After the last one all must have ended, with no page in use.
//
// Threads: simulate() makes what it needs; simulate_apart() forks, so call it while the process has
// one thread.

#include <cstddef>
#include <functional>
#include <string>

#include "engine/ledger.h"
#include "engine/scenario.h"

namespace deepinfer::engine {

struct SimulationResult {
  std::string failure;  // empty: none
  size_t step = 0;      // the last one
  Ledger::Seen seen{};
  bool ok() const { return failure.empty(); }
};

SimulationResult simulate(const Scenario& scenario);

// In a process of its own, so that a check() that fails is a result too.
SimulationResult simulate_apart(const Scenario& scenario);

struct SmallScenario {
  Scenario scenario;
  SimulationResult result;
  size_t runs = 0;
  std::string report() const;
};

// A scenario of fewer steps, requests, cancellations and faults that fails too: what can go goes,
// in halves, then in smaller pieces, within `most_runs` runs.
SmallScenario shrink(Scenario scenario, SimulationResult result,
                     const std::function<SimulationResult(const Scenario&)>& run, size_t most_runs);

}  // namespace deepinfer::engine
