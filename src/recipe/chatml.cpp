#include "recipe/chatml.h"

namespace deepinfer::recipe {
namespace {

constexpr std::string_view kSmolLm2System =
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
constexpr std::string_view kQwen25System =
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
constexpr std::string_view kQwen2System = "You are a helpful assistant.";

// The longest line first: Qwen2's is the end of Qwen2.5's.
constexpr std::string_view kSystemLines[] = {kSmolLm2System, kQwen25System, kQwen2System};

std::string_view default_system(const LayoutEvidence& evidence) {
  for (std::string_view line : kSystemLines) {
    if (evidence.chat_template.find(line) != std::string_view::npos) return line;
  }
  if (evidence.chat_template.empty() && evidence.family == "qwen2") return kQwen2System;
  return {};
}

void add_message(PromptPieces& prompt, std::string_view role, std::string_view content) {
  prompt.control("<|im_start|>");
  prompt.plain(role);
  prompt.plain("\n");
  prompt.plain(content);
  prompt.control("<|im_end|>");
  prompt.plain("\n");
}

Result<PromptPieces> render(const Conversation& conversation, const LayoutOptions& options) {
  TRY(check_conversation(conversation));
  PromptPieces prompt;
  if (conversation.messages.front().role != Role::system && !options.default_system.empty())
    add_message(prompt, "system", options.default_system);
  for (const Message& message : conversation.messages) {
    const std::string_view content = message.content.text;
    const bool drop = options.drops_thinking && message.role == Role::assistant;
    add_message(prompt, role_name(message.role), drop ? without_thinking(content) : content);
  }
  prompt.control("<|im_start|>");
  prompt.plain("assistant\n");
  return prompt;
}

}  // namespace

Layout chatml_layout(const LayoutEvidence& evidence) {
  Layout layout{
      .name = "chatml", .turn_ends = {"<|im_end|>"}, .options = {}, .render_with = render};
  layout.options.default_system = default_system(evidence);
  layout.options.drops_thinking = evidence.family == "qwen3" ||
                                  evidence.chat_template.find("</think>") != std::string_view::npos;
  return layout;
}

}  // namespace deepinfer::recipe
