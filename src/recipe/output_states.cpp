#include "recipe/output_states.h"

namespace deepinfer::recipe {
namespace {

using enum OutputState;

constexpr size_t kBar = 3, kMarker = 4 + 2 * kBar;
constexpr OutputSpelling kOpen{"<\uFF5CDSML\uFF5C", 1, 1 + kMarker};
constexpr OutputSpelling kClose{"</\uFF5CDSML\uFF5C", 2, 2 + kMarker};
constexpr OutputSpelling kCloseV4{"</\uFF5CDSML\uFF5Ctool_calls>", 2, 2 + kMarker};
constexpr OutputSpelling kCloseV41{"</\uFF5CDSML\uFF5C calls>", 2, 2 + kMarker};
constexpr OutputSpelling kEndThink{"</think>", 0, 8};
constexpr OutputSpelling kLineEnd{"\n"};

constexpr OutputRow kOutputRows[] = {
    {answer, OutputRule::stops, {}, end, OutputAct::stop},
    {answer, OutputRule::tools, kOpen, calls, OutputAct::drop},
    {answer, OutputRule::simple, kEndThink, answer, OutputAct::drop},

    {answer_lead, OutputRule::stops, {}, end, OutputAct::stop},
    {answer_lead, OutputRule::tools, kOpen, calls, OutputAct::drop},
    {answer_lead, OutputRule::lead, kLineEnd, answer_lead, OutputAct::drop},
    {answer_lead, OutputRule::simple, kEndThink, answer, OutputAct::drop},

    {prose, OutputRule::simple, {"```json\n"}, json, OutputAct::drop},
    {prose, OutputRule::simple, {"```\n"}, json, OutputAct::drop},
    {prose, OutputRule::simple, {"{"}, json, OutputAct::mark},
    {prose, OutputRule::simple, {"["}, json, OutputAct::mark},
    {prose, OutputRule::tools, kOpen, calls, OutputAct::drop},
    {prose, OutputRule::simple, kEndThink, prose, OutputAct::drop},

    {prose_lead, OutputRule::simple, {"```json\n"}, json, OutputAct::drop},
    {prose_lead, OutputRule::simple, {"```\n"}, json, OutputAct::drop},
    {prose_lead, OutputRule::simple, {"{"}, json, OutputAct::mark},
    {prose_lead, OutputRule::simple, {"["}, json, OutputAct::mark},
    {prose_lead, OutputRule::tools, kOpen, calls, OutputAct::drop},
    {prose_lead, OutputRule::lead, kLineEnd, prose_lead, OutputAct::drop},
    {prose_lead, OutputRule::simple, kEndThink, prose, OutputAct::drop},

    {json, OutputRule::stops, {}, end, OutputAct::stop},
    {json, OutputRule::simple, {"\n```"}, after_json, OutputAct::drop},
    {after_json, OutputRule::tools, kOpen, calls, OutputAct::drop},

    {reason, OutputRule::tools, kOpen, calls, OutputAct::drop},
    {reason, OutputRule::newlines, kEndThink, answer_lead, OutputAct::drop},
    {reason_lead, OutputRule::tools, kOpen, calls, OutputAct::drop},
    {reason_lead, OutputRule::lead, kLineEnd, reason_lead, OutputAct::drop},
    {reason_lead, OutputRule::newlines, kEndThink, answer_lead, OutputAct::drop},

    {calls, OutputRule::simple, {"invoke name=\""}, call_name, OutputAct::begin},
    {calls, OutputRule::simple, kCloseV4, end, OutputAct::drop},
    {calls, OutputRule::simple, kCloseV41, end, OutputAct::drop},
    {call_name, OutputRule::simple, {"\""}, first_argument, OutputAct::call},
    {first_argument, OutputRule::simple, {"parameter name="}, key, OutputAct::arguments, "{"},
    {first_argument, OutputRule::simple, kClose, calls, OutputAct::arguments, "{}"},
    {next_argument, OutputRule::simple, {"parameter name="}, key, OutputAct::arguments, ", "},
    {next_argument, OutputRule::simple, kClose, calls, OutputAct::arguments, "}"},
    {key, OutputRule::simple, {" "}, type, OutputAct::arguments, ": "},
    {type, OutputRule::simple, {"true\">"}, string_value, OutputAct::arguments, "\""},
    {type, OutputRule::simple, {"false\">"}, json_value, OutputAct::drop},
    {string_value, OutputRule::simple, kClose, next_argument, OutputAct::arguments, "\""},
    {json_value, OutputRule::simple, kClose, next_argument, OutputAct::drop},
};
constexpr OutputRest kOutputRests[] = {
    {answer, OutputAct::content},
    {answer_lead, OutputAct::content},
    {prose, OutputAct::space},
    {prose_lead, OutputAct::space},
    {json, OutputAct::content},
    {after_json, OutputAct::space},
    {reason, OutputAct::reasoning},
    {reason_lead, OutputAct::reasoning},
    {calls, OutputAct::drop},
    {call_name, OutputAct::name},
    {first_argument, OutputAct::drop},
    {next_argument, OutputAct::drop},
    {key, OutputAct::raw},
    {type, OutputAct::drop},
    {string_value, OutputAct::escaped},
    {json_value, OutputAct::raw},
    {end, OutputAct::drop},
};

}  // namespace

std::span<const OutputRow> output_rows() { return kOutputRows; }
std::span<const OutputRest> output_rests() { return kOutputRests; }

OutputState state_for_mode(OutputState state, const ParsingOptions& options) {
  if (!options.parse_json_output) return state;
  if (state == answer) return prose;
  return state == answer_lead ? prose_lead : state;
}

OutputState start_state(const ParsingOptions& options) {
  if (options.starts_in_tool_calls) return calls;
  switch (options.stage) {
    case ThinkingStage::reasoning_start:
      return reason_lead;
    case ThinkingStage::reasoning_continuation:
      return reason;
    case ThinkingStage::content_continuation:
      return state_for_mode(answer, options);
    case ThinkingStage::none:
      break;
  }
  return state_for_mode(answer_lead, options);
}

}  // namespace deepinfer::recipe
