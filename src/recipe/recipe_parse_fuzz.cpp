// Output parser: any bytes in any chunks give the events of the whole.

#include <cstdint>
#include <string>

#include "base/check.h"
#include "recipe/output_parser.h"

namespace {

using namespace deepinfer;
using namespace deepinfer::recipe;

struct Joined {
  std::string content, reasoning, calls, stop;
  bool operator==(const Joined&) const = default;
};

Joined parse(const ParsingOptions& options, std::string_view text, size_t step) {
  OutputParser parser(options);
  std::vector<OutputEvent> events;
  for (size_t at = 0; at < text.size(); at += step)
    parser.push(text.substr(at, step), Spelling::any, events);
  parser.finish(events);
  Joined joined;
  for (const OutputEvent& event : events) {
    if (event.kind == OutputEvent::Kind::content) joined.content += event.text;
    if (event.kind == OutputEvent::Kind::reasoning) joined.reasoning += event.text;
    if (event.kind == OutputEvent::Kind::call) joined.calls += '\n';
    if (event.kind == OutputEvent::Kind::call) joined.calls += event.text;
    if (event.kind == OutputEvent::Kind::arguments) joined.calls += event.text;
    if (event.kind == OutputEvent::Kind::stop) joined.stop = event.text;
  }
  // In JSON mode prose becomes one space for each piece.
  if (options.parse_json_output) std::erase(joined.content, ' ');
  return joined;
}

}  // namespace

// The first byte chooses the options, the second the size of chunks; the rest is the output.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const uint8_t choice = data[0];
  ParsingOptions options;
  options.stage = static_cast<ThinkingStage>(choice & 3);
  options.parse_tool_calls = (choice & 4) == 0;
  options.parse_json_output = (choice & 8) != 0;
  options.starts_in_tool_calls = (choice & 16) != 0;
  if ((choice & 32) != 0) options.stop_sequences = {"END", "\n\n", "aab", "<"};
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Joined whole = parse(options, text, std::max<size_t>(text.size(), 1));
  check(parse(options, text, 1) == whole, "byte by byte");
  check(parse(options, text, data[1] % 31 + 1) == whole, "in chunks");
  return 0;
}
