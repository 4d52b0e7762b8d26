#pragma once

// Request: what a client asks for, in the form that the three protocols share. The converters of
// chat_request.h, messages_request.h and responses_request.h make it.
//
// Threads: plain values.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "recipe/conversation.h"
#include "recipe/deepseek_prompt.h"

namespace deepinfer::recipe {

// What the sampler must keep to. Nothing in this folder enforces it.
enum class ConstraintKind { json, regex, tool_call, tool_call_required };

struct OutputConstraint {
  ConstraintKind kind = ConstraintKind::json;
  // json: a schema or empty (any object); regex: the pattern; tool_call…: a JSON array of tools.
  std::string schema;
  bool operator==(const OutputConstraint&) const = default;
};

struct InferenceOptions {
  std::optional<uint64_t> max_tokens;  // as asked, see resolve_max_tokens()
  float temperature = 1.0f;
  float top_p = 1.0f;
  bool logprobs = false;
  std::optional<uint32_t> top_logprobs;
  std::optional<uint64_t> seed;
  std::optional<OutputConstraint> constraint;
  bool operator==(const InferenceOptions&) const = default;
};

// Where the answer starts: behind the header the model writes an answer, or thinks first, or goes
// on with thoughts or an answer that the client began.
enum class ThinkingStage { none, reasoning_start, reasoning_continuation, content_continuation };

struct ParsingOptions {
  bool parse_tool_calls = true;
  bool starts_in_tool_calls = false;  // the header opened the call block
  bool parse_json_output = false;     // prose around the first JSON value is dropped
  ThinkingStage stage = ThinkingStage::none;
  std::vector<std::string> stop_sequences;
  bool operator==(const ParsingOptions&) const = default;
};

struct Request {
  Conversation conversation;
  DeepSeekVersion version = DeepSeekVersion::v41;
  bool stream = false;
  bool null_usage = true;  // Chat: chunks before the last one say "usage": null
  InferenceOptions inference;
  ParsingOptions parsing;
  bool operator==(const Request&) const = default;
};

std::string_view constraint_name(ConstraintKind kind);
std::string_view stage_name(ThinkingStage stage);  // "ReasoningStart"; empty for none
std::optional<ThinkingStage> stage_from_name(std::string_view name);

// Tokens that the answer may have. Asked: kept if prompt and answer fit into the context, else an
// error with both numbers. Not asked: 8192, 65536 when thinking, 131072 when thinking hardest,
// lowered to what is left, at least 1; an error when the prompt alone does not fit.
Result<uint64_t> resolve_max_tokens(const Request& request, uint64_t prompt_tokens,
                                    uint64_t context);

}  // namespace deepinfer::recipe
