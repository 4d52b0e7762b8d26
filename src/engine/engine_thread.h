#pragma once

// EngineThread: an engine that runs in the background. Requests from any thread, events to each
// request's own sink.
//
//   auto thread = EngineThread::start(std::move(engine), clock);
//   TRY(thread->add(request, [](engine::Event event) { ... }));
//
// A sink runs on the engine's thread: it must be short and must not throw or wait for the engine
// (EventQueue hands events to another thread). It may call add() and cancel().
//
// Every accepted request ends: each of its choices has one event with a finish reason, whatever
// happens; no event follows it. The id may be used again from that event on.
//
// Liveness: heartbeat() tells when work last moved and how many requests live; stuck() says so when
// work is there and no token, prompt row or end has come for `patience` (progress_watch.h).
//
// Threads: all functions from any, except that drain(), profile() and the destructor must not run
// inside of a sink; the destructor is the last call.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/event_queue.h"

namespace deepinfer::engine {

class EngineThread {
 public:
  struct Heartbeat {
    int64_t last_progress_ns = 0;  // of the engine's clock
    size_t live = 0;               // requests that did not end yet
    uint64_t steps = 0;            // that ended
  };

  // The clock that the engine was created with; it must outlive the thread.
  static std::unique_ptr<EngineThread> start(std::unique_ptr<Engine> engine, const Clock& clock);
  // Cancels what lives, delivers those ends, and joins.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  // The checks of Engine::add(), answered at once without waiting for a step; then `sink` hears of
  // the request. Fails (exhausted) when limits().waiting sequences and as many as run live already,
  // (cancelled) after drain().
  Result<void> add(Request request, Sink sink);
  // Takes effect within a step; idempotent: unknown and ended ids are fine.
  void cancel(uint64_t request);
  // No new requests from now on; waits until all ended, or cancels them after `patience` and waits
  // for those ends.
  void drain(std::chrono::milliseconds patience);

  Heartbeat heartbeat() const;
  // Empty while work moves or nothing is to do; else what is stuck, and since when.
  std::string stuck(std::chrono::milliseconds patience) const;
  Engine::StepCounters counters() const;  // as of the last step
  const Limits& limits() const;

  // Traces the next `steps` (1 .. 1000) steps and returns their trace file (step_trace.h). Fails
  // (exhausted) while another profile runs, and when fewer steps ran within `patience`.
  Result<std::string> profile(size_t steps, std::chrono::milliseconds patience);

 private:
  struct State;
  explicit EngineThread(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer::engine
