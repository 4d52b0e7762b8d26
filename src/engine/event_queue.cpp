#include "engine/event_queue.h"

#include <utility>

#include "base/check.h"

namespace deepinfer::engine {

void EventQueue::push(Event event) {
  {
    const std::lock_guard lock(mutex_);
    check(open_ > 0, "an event after the end of its request");
    if (event.finish != FinishReason::none) --open_;
    events_.push_back(std::move(event));
  }
  ready_.notify_all();
}

std::optional<Event> EventQueue::pop(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  ready_.wait_for(lock, timeout, [&] { return !events_.empty() || open_ == 0; });
  if (events_.empty()) return std::nullopt;
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

bool EventQueue::ended() const {
  const std::lock_guard lock(mutex_);
  return open_ == 0 && events_.empty();
}

Sink EventQueue::sink_of(std::shared_ptr<EventQueue> queue) {
  return [queue = std::move(queue)](Event event) { queue->push(std::move(event)); };
}

}  // namespace deepinfer::engine
