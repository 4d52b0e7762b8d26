#pragma once

// A progress bar on stderr for long work: only when stderr is a terminal and NO_COLOR is not set,
// at most ten times a second; otherwise silent. The line is wiped at the end.
//
//   Progress progress("packing", total_bytes, Progress::Unit::bytes);
//   progress.update(done);   // "packing  [#####.....]  52 %  1.2 of 2.3 GB  0:14 left"
//
// Threads: update() from any, one bar at a time.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "base/clock.h"

namespace deepinfer {

// Whether bars and colours are wanted on this descriptor.
bool decorates(int descriptor);

class Progress {
 public:
  enum class Unit { count, bytes };

  // enabled: false also when the command prints JSON (the caller knows). total 0: not known.
  Progress(std::string label, uint64_t total, Unit unit, bool enabled = decorates(2),
           const Clock& clock = system_clock(), int descriptor = 2);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(uint64_t done);  // the absolute amount
  void advance(uint64_t by);   // on top of what was reported

 private:
  void advance_to(uint64_t done);
  void draw(uint64_t done, int64_t now_ns);

  const std::string label_;
  const uint64_t total_;
  const Unit unit_;
  const bool enabled_;
  const Clock& clock_;
  const int descriptor_;
  const int64_t start_ns_;
  std::atomic<uint64_t> done_{0};
  std::atomic<int64_t> next_ns_;
  std::mutex drawing_;
  bool drawn_ = false;  // under drawing_
};

// The line without its colours and cursor movements.
std::string progress_line(const std::string& label, uint64_t done, uint64_t total,
                          Progress::Unit unit, double seconds);

}  // namespace deepinfer
