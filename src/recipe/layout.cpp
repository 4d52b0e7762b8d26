#include "recipe/layout.h"

#include "recipe/chatml.h"
#include "recipe/deepseek_prompt.h"
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

// The parts of a family's template that its layout is recognised by.
struct Named {
  std::string_view name;
  LayoutEvidence evidence;
};

constexpr Named kNamed[] = {
    {"chatml", {"<|im_start|>", "llama"}},
    {"smollm2",
     {"<|im_start|>You are a helpful AI assistant named SmolLM, trained by Hugging Face", "llama"}},
    {"qwen2", {"<|im_start|>You are a helpful assistant.", "qwen2"}},
    {"qwen2.5",
     {"<|im_start|>You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", "qwen2"}},
    {"qwen3", {"<|im_start|></think>", "qwen3"}},
    {"llama3", {"<|start_header_id|>", "llama"}},
    {"llama3.1", {"<|start_header_id|>Cutting Knowledge Date", "llama"}},
    {"deepseek_v3", {"<\uFF5CUser\uFF5C>", "deepseek_v3"}},
    {"deepseek_r1", {"<\uFF5CUser\uFF5C><\uFF5CAssistant\uFF5C><think>", "deepseek_v3"}},
    {"deepseek_v4", {"", "deepseek_v4"}},
    {"deepseek_v41", {"", "deepseek_v41"}},
};

template <DeepSeekVersion version>
Result<PromptPieces> render_version(const Conversation& conversation, const LayoutOptions&) {
  if (conversation.messages.empty()) return Error::invalid("messages", "there are none");
  return render_deepseek(conversation, version);
}

template <DeepSeekVersion version>
Layout version_layout(std::string_view name) {
  return {.name = name,
          .turn_ends = {DeepSeekTokens().end},
          .options = {.default_system = {}, .drops_thinking = true},
          .render_with = render_version<version>};
}

}  // namespace

Result<Layout> choose_layout(const LayoutEvidence& evidence, const text::Tokenizer* tokenizer) {
  if (evidence.family == "deepseek_v4") return version_layout<DeepSeekVersion::v4>("deepseek-v4");
  if (evidence.family == "deepseek_v41")
    return version_layout<DeepSeekVersion::v41>("deepseek-v4.1");
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

Result<Layout> named_layout(std::string_view name) {
  std::string known;
  for (const Named& one : kNamed) {
    if (one.name == name) return choose_layout(one.evidence, nullptr);
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  return Error::invalid("family", "\"" + std::string(name) + "\" is not known", known);
}

Result<void> check_conversation(const Conversation& conversation) {
  if (conversation.messages.empty()) return Error::invalid("messages", "there are none");
  if (conversation.shows_tools())
    return Error::unsupported("tools", "this model's chat layout has none");
  if (conversation.format.kind == FormatKind::json_object ||
      conversation.format.kind == FormatKind::json_schema)
    return Error::unsupported("response_format", "this model's chat layout has none");
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const Message& message = conversation.messages[i];
    const std::string thing = "messages[" + std::to_string(i) + "]";
    if (message.role == Role::tool || message.role == Role::latest_reminder) {
      return Error::invalid(thing + ".role",
                            "\"" + std::string(role_name(message.role)) + "\" is not known",
                            "system, user or assistant");
    }
    if (message.role == Role::system && i > 0)
      return Error::invalid(thing + ".role", "a system message must be the first");
    if (!message.content.images.empty())
      return Error::unsupported(thing, "this model sees no images");
    if (message.prefix) return Error::unsupported(thing, "this layout continues no message");
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
