#pragma once

// Executor: who computes the steps. turn() hands over: when the step in flight has ended, `turn`
// runs, and if it says that there are rows, `forward` begins; turn() returns when `turn` is done.
//
//   caller:   plan N+1 | turn() ................ | plan N+2 | turn() ...
//   thread:   forward N ...... | turn | forward N+1 ........ | turn | ...
//
// The thread starts the next forward itself: no other thread has to wake up in between. The inline
// executor does the same in the same order on the caller's thread: forward N runs inside of the
// turn() that waits for it.
//
// Threads: turn() from one at a time. `turn` and `forward` never run at the same time.

#include <functional>
#include <memory>

namespace deepinfer::engine {

class Executor {
 public:
  using Turn = std::function<bool()>;  // whether there is something to compute
  using Forward = std::function<void()>;

  virtual ~Executor() = default;
  virtual void turn() = 0;
  // The last turn left something to compute, and no turn has ended it yet.
  virtual bool in_flight() const = 0;

  static std::unique_ptr<Executor> make_inline(Turn turn, Forward forward);
  // Waits, when destroyed, for a step in flight.
  static std::unique_ptr<Executor> make_thread(Turn turn, Forward forward);
};

}  // namespace deepinfer::engine
