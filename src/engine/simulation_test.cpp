// The engine under random loads, failures and limits, in every mode and with every kind of model.
//
//   DEEPINFER_SIMULATION_STEPS=1000000 engine_test --gtest_filter='*Simulation*'   more of it
//   DEEPINFER_SIMULATION_SEED=17 engine_test --gtest_filter='*Simulation*'         one seed again

#include "engine/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <string>

namespace deepinfer::engine {
namespace {

constexpr size_t kStepsInAll = 300'000;
constexpr size_t kStepsOfAScenario = 2'000;
constexpr size_t kRunsToShrink = 150;

size_t number_from(const char* name, size_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void expect_to_pass(uint64_t seed, const ScenarioLimits& limits, Ledger::Seen& sum) {
  const Scenario scenario = make_scenario(seed, kStepsOfAScenario, limits);
  const SimulationResult result = simulate_apart(scenario);
  sum.add(result.seen);
  if (result.ok()) return;
  const SmallScenario small = shrink(scenario, result, simulate_apart, kRunsToShrink);
  FAIL() << "seed " << seed << " fails at " << small.report();
}

struct Kind {
  LoopMode mode;
  size_t family;
};

void PrintTo(const Kind& kind, std::ostream* out) {
  *out << "family " << kind.family << (kind.mode == LoopMode::plain ? " plain" : " overlapped");
}

class Simulation : public ::testing::TestWithParam<Kind> {};

TEST_P(Simulation, NothingIsLostAndNoTokenChanges) {
  const ScenarioLimits limits{.mode = GetParam().mode, .family = GetParam().family};
  const size_t one = number_from("DEEPINFER_SIMULATION_SEED", 0);
  Ledger::Seen sum{};
  if (one != 0) return expect_to_pass(one, limits, sum);
  const size_t steps = number_from("DEEPINFER_SIMULATION_STEPS", kStepsInAll);
  const size_t scenarios = steps / kStepsOfAScenario / (2 * scenario_families());
  for (uint64_t seed = 1; seed <= scenarios; ++seed) {
    expect_to_pass(seed, limits, sum);
    if (HasFatalFailure()) return;
  }
  RecordProperty("seen", sum.text());
  if (steps != kStepsInAll) std::puts(sum.text().c_str());
  // That it tries what it claims to.
  EXPECT_GT(sum.preemptions, 0u);
  const bool drafts = make_scenario(1, 0, limits).family.rollback > 0;
  EXPECT_EQ(sum.accepted > 0, drafts);
  EXPECT_GT(sum.cached_tokens, 0u);
  EXPECT_GT(sum.errors, sum.timeouts);
  EXPECT_GT(sum.timeouts, 0u);
  EXPECT_GT(sum.cancelled, 0u);
}

std::vector<Kind> kinds() {
  std::vector<Kind> all;
  for (size_t family = 0; family < scenario_families(); ++family) {
    all.push_back({LoopMode::plain, family});
    all.push_back({LoopMode::overlapped, family});
  }
  return all;
}

std::string name_of(const ::testing::TestParamInfo<Kind>& kind) {
  const ScenarioLimits limits{.mode = kind.param.mode, .family = kind.param.family};
  std::string name = make_scenario(1, 0, limits).family.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name + (kind.param.mode == LoopMode::plain ? "_plain" : "_overlapped");
}

INSTANTIATE_TEST_SUITE_P(AllKinds, Simulation, ::testing::ValuesIn(kinds()), name_of);

}  // namespace
}  // namespace deepinfer::engine
