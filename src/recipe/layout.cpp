#include "recipe/layout.h"

#include "recipe/chatml.h"
#include "recipe/deepseek_r1.h"
#include "recipe/llama3.h"

namespace deepinfer::recipe {
namespace {

// The marker that a layout's template must hold, and the control token that shows it without one.
struct Known {
  std::string_view marker;
  Layout (*create)(const LayoutEvidence&);
};

constexpr Known kKnown[] = {
    {"<|start_header_id|>", llama3_layout},
    {"<\uFF5CUser\uFF5C>", deepseek_r1_layout},
    {"<|im_start|>", chatml_layout},
};

}  // namespace

Result<Layout> choose_layout(const LayoutEvidence& evidence, const text::Tokenizer* tokenizer) {
  for (const Known& known : kKnown) {
    if (evidence.chat_template.find(known.marker) != std::string_view::npos)
      return known.create(evidence);
  }
  if (!evidence.chat_template.empty()) {
    return Error::unsupported("chat template", "has none of the known markers",
                              "known layouts: chatml, llama3, deepseek-r1");
  }
  for (const Known& known : kKnown) {
    if (tokenizer == nullptr) break;
    const auto id = tokenizer->token_to_id(known.marker);
    if (id && tokenizer->is_added(*id)) return known.create(evidence);
  }
  return Error::unsupported("chat layout", "the model carries no chat template",
                            "a base model continues text: leave --chat out");
}

Result<void> check_conversation(const Conversation& conversation) {
  if (conversation.messages.empty()) return Error::invalid("messages", "there are none");
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const std::string& role = conversation.messages[i].role;
    const std::string thing = "messages[" + std::to_string(i) + "].role";
    if (role != "system" && role != "user" && role != "assistant") {
      return Error::invalid(thing, "\"" + role + "\" is not known", "system, user or assistant");
    }
    if (role == "system" && i > 0)
      return Error::invalid(thing, "a system message must be the first");
  }
  return {};
}

std::string_view without_thinking(std::string_view answer) {
  constexpr std::string_view kEnd = "</think>";
  const size_t end = answer.rfind(kEnd);
  if (end == std::string_view::npos) return answer;
  answer.remove_prefix(end + kEnd.size());
  while (!answer.empty() && answer.front() == '\n') answer.remove_prefix(1);
  return answer;
}

}  // namespace deepinfer::recipe
