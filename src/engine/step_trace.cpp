#include "engine/step_trace.h"

#include <algorithm>
#include <limits>

#include "base/json_writer.h"

namespace deepinfer::engine {
namespace {

constexpr double kNsPerUs = 1e3;
constexpr double kNsPerSecond = 1e9;

std::string_view track_name(StepTrace::Track track) {
  switch (track) {
    case StepTrace::Track::steps:
      return "steps";
    case StepTrace::Track::engine:
      return "engine";
    case StepTrace::Track::model:
      return "model";
    case StepTrace::Track::operations:
      return "operations (summed by name)";
  }
  return "";
}

void write_track(JsonWriter& json, StepTrace::Track track) {
  json.begin_object();
  json.member("ph", "M");
  json.member("name", "thread_name");
  json.member("pid", 1);
  json.member("tid", static_cast<int>(track));
  json.key("args");
  json.begin_object();
  json.member("name", track_name(track));
  json.end_object();
  json.end_object();
}

}  // namespace

void StepTrace::span(Track track, std::string_view name, int64_t begin_ns, int64_t end_ns,
                     std::vector<Argument> arguments) {
  spans_.push_back({track, std::string(name), begin_ns, end_ns, std::move(arguments)});
}

void StepTrace::step(int64_t begin_ns, int64_t end_ns, std::vector<Argument> arguments) {
  span(Track::steps, "step " + std::to_string(steps_seen_), begin_ns, end_ns, std::move(arguments));
  ++steps_seen_;
}

void StepTrace::operations(int64_t begin_ns, std::span<const models::OperationTime> times) {
  for (const models::OperationTime& time : times) {
    const int64_t end_ns = begin_ns + static_cast<int64_t>(time.seconds * kNsPerSecond);
    span(Track::operations, time.name, begin_ns, end_ns,
         {{"calls", static_cast<double>(time.calls)},
          {"weight_bytes", static_cast<double>(time.weight_bytes)},
          {"operations", time.operations}});
    begin_ns = end_ns;
  }
}

std::string StepTrace::json() const {
  int64_t origin = std::numeric_limits<int64_t>::max();
  for (const Span& span : spans_) origin = std::min(origin, span.begin_ns);
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  json.member("displayTimeUnit", "ms");
  json.key("traceEvents");
  json.begin_array();
  for (Track track : {Track::steps, Track::engine, Track::model, Track::operations}) {
    write_track(json, track);
  }
  for (const Span& span : spans_) {
    json.begin_object();
    json.member("ph", "X");
    json.member("name", span.name);
    json.member("pid", 1);
    json.member("tid", static_cast<int>(span.track));
    json.member("ts", static_cast<double>(span.begin_ns - origin) / kNsPerUs);
    json.member("dur", static_cast<double>(span.end_ns - span.begin_ns) / kNsPerUs);
    if (!span.arguments.empty()) {
      json.key("args");
      json.begin_object();
      for (const Argument& argument : span.arguments) json.member(argument.name, argument.value);
      json.end_object();
    }
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return out;
}

}  // namespace deepinfer::engine
