#pragma once

// Time that tests can own: whoever measures or waits takes a Clock&.
//
//   now_ns():  monotonic, from an arbitrary start; for durations and deadlines
//   wall_ns(): since 1970 UTC; for what people and other machines read
//
// Threads: any.

#include <atomic>
#include <cstdint>

namespace deepinfer {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() const = 0;
  virtual int64_t wall_ns() const = 0;
};

class SystemClock final : public Clock {
 public:
  int64_t now_ns() const override;
  int64_t wall_ns() const override;
};

// The process's SystemClock.
const Clock& system_clock();

// Stands still until it is advanced; both readings move together.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(int64_t now_ns = 0, int64_t wall_ns = 0) : now_(now_ns), wall_(wall_ns) {}
  int64_t now_ns() const override { return now_.load(std::memory_order_acquire); }
  int64_t wall_ns() const override { return wall_.load(std::memory_order_acquire); }
  void advance_ns(int64_t by) {
    now_.fetch_add(by, std::memory_order_acq_rel);
    wall_.fetch_add(by, std::memory_order_acq_rel);
  }

 private:
  std::atomic<int64_t> now_;
  std::atomic<int64_t> wall_;
};

inline double seconds_of(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace deepinfer
