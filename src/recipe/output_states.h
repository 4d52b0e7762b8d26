#pragma once

// The states of the output parser and what ends them: the table that OutputParser runs.
//
// Source: specification of the DeepSeek output format, section 5. Threads: constants.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "recipe/request.h"

namespace deepinfer::recipe {

// What becomes of a segment. Neighbours of the kinds up to `escaped` join; those after `mark` come
// once, however many chunks their spelling came in.
enum class OutputAct : uint8_t {
  content,
  reasoning,
  drop,
  space,    // one space for each piece
  name,     // of the call
  raw,      // arguments as they are
  escaped,  // arguments inside of a JSON string
  mark,     // content that opens JSON
  begin,    // of a name
  call,     // the name is complete
  arguments,
  stop,
};

enum class OutputState : uint8_t {
  answer,
  answer_lead,  // "lead": one line end at the start is dropped, again and again
  prose,        // the answer of JSON mode, before JSON
  prose_lead,
  json,
  after_json,
  reason,
  reason_lead,
  calls,
  call_name,
  first_argument,
  next_argument,
  key,
  type,
  string_value,
  json_value,
  end,
};

inline constexpr size_t kOutputStates = 17;

// newlines: the line ends before the spelling belong to it. tools: only when calls are parsed.
// lead: only as the first byte in the state. stops: stands for all stop strings.
enum class OutputRule : uint8_t { simple, newlines, tools, lead, stops };
struct OutputSpelling {
  std::string_view text;
  size_t control_begin = 0, control_end = 0;
};
struct OutputRow {
  OutputState state;
  OutputRule rule;
  OutputSpelling spelled;
  OutputState next;
  OutputAct act;
  std::string_view text = {};
};
struct OutputRest {
  OutputState state;
  OutputAct act;
};

// All states' patterns; those of one state in the order in which they win when several end at one
// byte.
std::span<const OutputRow> output_rows();
// What becomes of the text that no pattern of a state takes.
std::span<const OutputRest> output_rests();

OutputState start_state(const ParsingOptions& options);
// JSON mode has states of its own for the answer.
OutputState state_for_mode(OutputState state, const ParsingOptions& options);

}  // namespace deepinfer::recipe
