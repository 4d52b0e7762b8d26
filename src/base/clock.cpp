#include "base/clock.h"

#include <ctime>

namespace deepinfer {
namespace {

int64_t read_clock(clockid_t id) {
  timespec time;
  ::clock_gettime(id, &time);
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

int64_t SystemClock::now_ns() const { return read_clock(CLOCK_MONOTONIC); }
int64_t SystemClock::wall_ns() const { return read_clock(CLOCK_REALTIME); }

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

}  // namespace deepinfer
