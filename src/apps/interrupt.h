#pragma once

// Ctrl-C and SIGTERM. Outside of an InterruptScope they end the process at once with exit code 130;
// inside they raise a flag, so that running work can be taken back cleanly. A second signal inside
// a scope ends the process in any case. Either way the terminal gets back the settings it had at
// install_interrupt_handler().
//
// Threads: the handler may run on any thread; scopes belong to the main thread and do not nest.

#include <atomic>

namespace deepinfer::apps {

void install_interrupt_handler();

class InterruptScope {
 public:
  InterruptScope();  // lowers the flag
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  const std::atomic<bool>& flag() const;
  bool interrupted() const { return flag().load(); }
};

}  // namespace deepinfer::apps
