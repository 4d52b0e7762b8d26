#include "engine/engine.h"

#include <string>
#include <utility>

#include "engine/engine_core.h"
#include "engine/executor.h"
#include "engine/limits.h"
#include "engine/request_check.h"
#include "speculation/ngram_drafter.h"

// Invariants, beside those of roster.h
//   1. All pages hold a full context, so the oldest sequence of the highest priority finds room
//   when
//      all others gave theirs back: each step makes progress.
//   2. Every sequence ends in exactly one event that says so.

namespace deepinfer::engine {

struct Engine::State {
  State(models::Model& model, const Options& options, const Limits& limits, const Clock& clock)
      : core(model, options, limits, clock) {}

  EngineCore core;
  std::unique_ptr<Executor> executor;  // uses the core, so it ends first

  // A sink that throws is a bug of the caller.
  void deliver(const Sink& sink) noexcept {
    for (Event& event : std::exchange(core.events, {})) sink(std::move(event));
  }
  void plan() {
    core.apply_cancels();
    core.apply_timeouts();
    core.make_plan();
  }
  Result<void> result() {
    std::optional<Error> failure = std::exchange(core.failure, std::nullopt);
    if (failure && core.roster.empty()) return *std::move(failure);
    return {};
  }
};

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::create(models::Model& model, const Options& options,
                                               const Clock& clock) {
  const Limits limits = TRY(compute_limits(model, options));
  auto state = std::make_unique<State>(model, options, limits, clock);
  EngineCore& core = state->core;
  core.pool = TRY(cache::PagePool::create(model.cache_layout(), limits.pages));
  if (options.prefix_cache) {
    core.prefixes = std::make_unique<cache::PrefixCache>(
        *core.pool, cache::PrefixCache::Options{.identity = options.identity,
                                                .max_snapshot_bytes = options.snapshot_bytes});
  }
  core.resumption.emplace(model, *core.pool, core.prefixes.get(), options.snapshot_bytes > 0,
                          options.snapshot_every_pages);
  core.planner.emplace(model, core.limits, core.options, clock, core.roster, *core.resumption);
  core.drafter = std::make_unique<speculation::NgramDrafter>(speculation::DraftGate::kMost);
  if (options.metrics != nullptr) core.metrics.emplace(*options.metrics);
  core.reader.emplace(options.isa, options.acceptance, options.pool);
  const auto turn = [raw = &core] { return raw->turn(); };
  const auto forward = [raw = &core] { raw->forward(); };
  state->executor = options.mode == LoopMode::overlapped && options.compute_thread
                        ? Executor::make_thread(turn, forward)
                        : Executor::make_inline(turn, forward);
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

const Limits& Engine::limits() const { return state_->core.limits; }
bool Engine::busy() const {
  return !state_->core.roster.empty() || state_->executor->in_flight() ||
         !state_->core.events.empty();
}
const Engine::StepCounters& Engine::counters() const { return state_->core.counters; }
const cache::PrefixCache* Engine::prefix_cache() const { return state_->core.prefixes.get(); }
size_t Engine::pages_in_use() const { return state_->core.pages_in_use(); }
void Engine::check_invariants() const { state_->core.check_invariants(); }

void Engine::trace(StepTrace* trace) { state_->core.trace = trace; }

Result<void> Engine::validate(const Request& request) const {
  return check_request(request, state_->core.model, state_->core.limits);
}

Result<void> Engine::add(Request request) {
  EngineCore& core = state_->core;
  const std::string name = "request " + std::to_string(request.id);
  if (core.roster.find(request.id) != nullptr) return Error::invalid(name, "the id is in use");
  TRY(validate(request));
  if (core.roster.waiting().size() + request.choices > core.limits.waiting) {
    return Error::exhausted(name, std::to_string(core.roster.waiting().size()) +
                                      " requests wait already, " + std::to_string(request.choices) +
                                      " more exceed " + std::to_string(core.limits.waiting));
  }
  core.planner->arrived(request);
  core.roster.accept(std::move(request), core.model.config().eos_ids, core.limits.context,
                     core.clock.now_ns());
  return {};
}

Result<void> Engine::cancel(uint64_t request) {
  if (state_->core.roster.find(request) == nullptr) {
    return Error::not_found("request " + std::to_string(request), "is not running or waiting");
  }
  state_->core.cancelled.push_back(request);
  return {};
}

Result<void> Engine::step(const Sink& sink) {
  State& state = *state_;
  if (!state.executor->in_flight()) {
    state.plan();
    state.executor->turn();  // begins a step
  }
  if (state.core.options.mode == LoopMode::overlapped && state.executor->in_flight()) {
    state.deliver(sink);
    state.plan();
  }
  if (state.executor->in_flight()) state.executor->turn();
  const bool tell = state.core.options.mode == LoopMode::plain || !state.executor->in_flight();
  if (tell) state.deliver(sink);
  return state.result();
}

Result<void> Engine::drain(const Sink& sink) {
  State& state = *state_;
  if (state.executor->in_flight()) state.executor->turn();  // no plan: nothing begins
  state.deliver(sink);
  return state.result();
}

}  // namespace deepinfer::engine
