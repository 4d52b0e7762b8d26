#include "recipe/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace deepinfer::recipe {
namespace {

constexpr std::array<std::pair<ThinkingStage, std::string_view>, 3> kStages = {{
    {ThinkingStage::reasoning_start, "ReasoningStart"},
    {ThinkingStage::reasoning_continuation, "ReasoningContinuation"},
    {ThinkingStage::content_continuation, "ContentContinuation"},
}};

constexpr uint64_t kDefaultTokens = 8192;
constexpr uint64_t kDefaultThinkingTokens = 65536;
constexpr uint64_t kDefaultMaxEffortTokens = 131072;

}  // namespace

std::string_view constraint_name(ConstraintKind kind) {
  switch (kind) {
    case ConstraintKind::json:
      return "json";
    case ConstraintKind::regex:
      return "regex";
    case ConstraintKind::tool_call:
      return "tool_call";
    case ConstraintKind::tool_call_required:
      return "tool_call_required";
  }
  return {};
}

std::string_view stage_name(ThinkingStage stage) {
  for (const auto& [known, name] : kStages) {
    if (known == stage) return name;
  }
  return {};
}

std::optional<ThinkingStage> stage_from_name(std::string_view name) {
  for (const auto& [stage, known] : kStages) {
    if (known == name) return stage;
  }
  return std::nullopt;
}

Result<uint64_t> resolve_max_tokens(const Request& request, uint64_t prompt_tokens,
                                    uint64_t context) {
  const uint64_t asked = request.inference.max_tokens.value_or(0);
  if (prompt_tokens > context || asked > context - prompt_tokens) {
    return Error::invalid(
        "max_tokens",
        fmt::format("the context holds {} tokens, {} were asked for ({} in the messages, {} in "
                    "the completion)",
                    context, prompt_tokens + asked, prompt_tokens, asked),
        "shorten the messages or the completion");
  }
  if (request.inference.max_tokens) return asked;
  const Conversation& conversation = request.conversation;
  uint64_t tokens = kDefaultTokens;
  if (conversation.thinking) {
    tokens = conversation.effort == Effort::max ? kDefaultMaxEffortTokens : kDefaultThinkingTokens;
  }
  return std::max<uint64_t>(1, std::min(tokens, context - prompt_tokens));
}

}  // namespace deepinfer::recipe
