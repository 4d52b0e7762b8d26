#pragma once

// EngineThread: an engine that runs in the background. Requests from any thread, events to each
// request's own sink.
//
//   auto thread = EngineThread::start(std::move(engine));
//   TRY(thread->add(request, [](engine::Event event) { ... }));
//
// A sink runs on the engine's thread, while a step computes: it must be short and must not throw or
// wait for the engine (hand events to a queue for anything long; EventQueue does).
//
// Liveness: heartbeat() tells when a step last ended and how many requests wait or run; stuck()
// says so when work is there and no token, prompt row or end has come for `patience`.
//
// Threads: all functions from any.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/engine.h"

namespace deepinfer::engine {

// Events of one request, to be pulled. Bounded by the request's own length.
class EventQueue {
 public:
  void push(Event event);
  // Waits for the next one; nullopt after the event that ended the last choice, or on timeout.
  std::optional<Event> pop(std::chrono::milliseconds timeout);

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Event> events_;
};

class EngineThread {
 public:
  struct Heartbeat {
    int64_t last_progress_ns = 0;  // of the engine's clock
    size_t live = 0;               // requests waiting or running
    uint64_t steps = 0;
  };

  // The clock that the engine was created with.
  static std::unique_ptr<EngineThread> start(std::unique_ptr<Engine> engine, const Clock& clock);
  // Cancels what lives, delivers those ends, and joins.
  ~EngineThread();

  // The checks of Engine::add(), answered at once; then `sink` hears of it.
  Result<void> add(Request request, Sink sink);
  // Takes effect within a step; idempotent: unknown and ended ids are fine.
  void cancel(uint64_t request);
  // No new requests from now on; waits until all ended, or cancels them after `patience`.
  void drain(std::chrono::milliseconds patience);

  Heartbeat heartbeat() const;
  // Empty while tokens move or nothing is to do; else what is stuck, and since when.
  std::string stuck(std::chrono::milliseconds patience) const;
  Engine::StepCounters counters() const;
  const Limits& limits() const;

 private:
  struct State;
  explicit EngineThread(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer::engine
