#pragma once

// EventQueue: the events of one request, to be pulled by another thread than the engine's.
//
//   auto queue = std::make_shared<EventQueue>(request.choices);
//   TRY(thread->add(request, EventQueue::sink_of(queue)));
//   while (std::optional<Event> event = queue->pop(std::chrono::seconds(1))) ...
//
// Bounded by the request's own length: a reader that is slow, or gone, holds up nobody.
//
// Threads: push() from one, pop() and ended() from any.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "engine/request.h"

namespace deepinfer::engine {

class EventQueue {
 public:
  // Of a request with that many choices.
  explicit EventQueue(uint32_t choices = 1) : open_(choices) {}

  void push(Event event);
  // Waits for the next one; nullopt after the event that ended the last choice, and on timeout.
  std::optional<Event> pop(std::chrono::milliseconds timeout);
  // The event that ended the last choice was popped.
  bool ended() const;

  static Sink sink_of(std::shared_ptr<EventQueue> queue);

 private:
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Event> events_;
  uint32_t open_;  // choices whose end was not pushed yet
};

}  // namespace deepinfer::engine
