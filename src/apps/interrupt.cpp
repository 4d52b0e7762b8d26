#include "apps/interrupt.h"

#include <termios.h>
#include <unistd.h>

#include <csignal>

#include "apps/command.h"

namespace deepinfer::apps {
namespace {

std::atomic<bool> raised{false};
std::atomic<bool> in_scope{false};
termios saved_terminal;
std::atomic<bool> have_terminal{false};
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");

void handle(int) {
  if (in_scope.load() && !raised.exchange(true)) return;
  if (have_terminal.load()) tcsetattr(STDIN_FILENO, TCSANOW, &saved_terminal);
  _exit(kInterrupted);
}

}  // namespace

void install_interrupt_handler() {
  have_terminal.store(tcgetattr(STDIN_FILENO, &saved_terminal) == 0);
  struct sigaction action = {};
  action.sa_handler = handle;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

InterruptScope::InterruptScope() {
  raised.store(false);
  in_scope.store(true);
}

InterruptScope::~InterruptScope() { in_scope.store(false); }

const std::atomic<bool>& InterruptScope::flag() const { return raised; }

}  // namespace deepinfer::apps
