#pragma once

// StepTrace: what the engine did in a number of steps, as a file for a trace viewer (Chrome's
// about:tracing, Perfetto).
//
//   StepTrace trace(20);
//   while (!trace.complete()) { ...; trace.span(StepTrace::Track::model, "forward", a, b); ... }
//   std::string json = trace.json();
//
// Format: the "Trace Event Format" of the Chromium project: complete events ("ph":"X") in
// microseconds, one thread id a track.
//
// Threads: one at a time.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/model.h"

namespace deepinfer::engine {

class StepTrace {
 public:
  enum class Track { steps, engine, model, operations };
  struct Argument {
    std::string_view name;  // of static storage
    double value = 0;
  };

  explicit StepTrace(size_t steps) : steps_(steps) {}

  // [begin_ns, end_ns) of one clock.
  void span(Track track, std::string_view name, int64_t begin_ns, int64_t end_ns,
            std::vector<Argument> arguments = {});
  // A whole step; counts towards complete().
  void step(int64_t begin_ns, int64_t end_ns, std::vector<Argument> arguments);
  // The operations of a forward pass that began then, each name summed over the layers, laid one
  // after the other: lengths are measured, places are not.
  void operations(int64_t begin_ns, std::span<const models::OperationTime> times);

  bool complete() const { return steps_seen_ >= steps_; }
  size_t steps_seen() const { return steps_seen_; }
  std::string json() const;

 private:
  struct Span {
    Track track;
    std::string name;
    int64_t begin_ns, end_ns;
    std::vector<Argument> arguments;
  };
  size_t steps_;
  size_t steps_seen_ = 0;
  std::vector<Span> spans_;
};

}  // namespace deepinfer::engine
