#pragma once

// What the converters of the three protocols share: options, and the rules that settle a Request.
//
// Source: specification of the recipe, sections 2 and 11. Threads: pure functions.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/refusal.h"
#include "recipe/request.h"

namespace deepinfer::recipe {

struct ConversionOptions {
  // What happens when an assistant's message lacks the reasoning that the model wrote with it.
  enum class MissingReasoning { fill_empty, reject };
  enum class WebSearch { drop, reject };

  bool default_thinking = true;
  MissingReasoning missing_reasoning = MissingReasoning::fill_empty;
  WebSearch responses_web_search = WebSearch::drop;
  WebSearch messages_web_search = WebSearch::reject;
  uint64_t thinking_max_tokens = 393216;  // the most that a request may ask for
  uint64_t plain_max_tokens = 393216;
  // Accepted model names; the match is exact.
  std::map<std::string, DeepSeekVersion, std::less<>> models = {
      {"DeepSeek-V4-Pro", DeepSeekVersion::v4}, {"DeepSeek-V4.1-Flash", DeepSeekVersion::v41}};
};

// The words of the protocols for effort.
enum class EffortWord { none, minimal, low, medium, high, xhigh, ultra, max };

// What a protocol says about thinking; the first that is there decides.
struct ThinkingAsked {
  std::optional<bool> type;  // "enabled", "adaptive": true
  std::optional<EffortWord> effort;
};

struct ChoiceAsked {
  ToolChoice choice = ToolChoice::automatic;
  std::optional<std::string> name;  // this tool and no other
};

// Where a protocol has its words and fields.
struct ProtocolNames {
  std::string_view messages;         // "messages", "input"
  std::string_view json_field;       // "response_format", "text.format"
  std::string_view reasoning_error;  // the sentence that clients match
};

// An unknown model lists all names.
Accepted<DeepSeekVersion> accept_model(const ConversionOptions& options, std::string_view name);

// 1 to 128 letters, digits, "_" or "-".
Accepted<void> accept_tool_name(std::string_view name, const std::string& field);

// Thinking and effort of the conversation.
void settle_thinking(const ThinkingAsked& asked, const ConversionOptions& options,
                     Conversation& conversation);

// Names are distinct, parameters are schemas of objects, strict ones in their strict form; the
// choice says which tools stay, and whether one must be called. Tools of no choice are not looked
// at.
Accepted<void> settle_tools(std::vector<Tool> tools, const ChoiceAsked& choice, Request& request);

// All tools are strict, or none; strict ones go with no format.
Accepted<void> accept_strict_mix(const Conversation& conversation);

// A format's schema: the strict form, which the constraint shows, or the schema as it is.
Accepted<Json> accept_format_schema(const Json& schema, bool strict);

// Some message says "json".
Accepted<void> accept_word_json(const Conversation& conversation, const ProtocolNames& names);

Accepted<void> accept_stops(const std::vector<std::string>& stops);
Accepted<void> accept_range(const std::optional<float>& value, std::string_view field, float low,
                            float high, bool low_included = true);
Accepted<void> accept_max_tokens(const std::optional<uint64_t>& asked, bool thinking,
                                 const ConversionOptions& options);
uint64_t max_tokens_bound(bool thinking, const ConversionOptions& options);

// Reasoning of earlier answers: dropped when not thinking, else filled or refused where missing.
Accepted<void> settle_reasoning(const ConversionOptions& options, const ProtocolNames& names,
                                Conversation& conversation);

// temperature and top_p by the rules of the version.
void settle_sampling(const std::optional<float>& temperature, const std::optional<float>& top_p,
                     Request& request);

// Parsing options and the constraint, when everything else is settled. constraint_schema: what the
// sampler is held to for a json_schema format.
void settle_answer(const Json& constraint_schema, Request& request);

}  // namespace deepinfer::recipe
