#include "recipe/llama3.h"

namespace deepinfer::recipe {
namespace {

constexpr std::string_view kDateLines =
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\r\f\v";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

void add_header(PromptPieces& prompt, std::string_view role) {
  prompt.control("<|start_header_id|>");
  prompt.plain(role);
  prompt.control("<|end_header_id|>");
  prompt.plain("\n\n");
}

Result<PromptPieces> render(const Conversation& conversation, const LayoutOptions& options) {
  TRY(check_conversation(conversation));
  PromptPieces prompt;
  prompt.control("<|begin_of_text|>");
  if (options.dated_system && conversation.messages.front().role != Role::system) {
    add_header(prompt, "system");
    prompt.plain(kDateLines);
    prompt.control("<|eot_id|>");
  }
  for (const Message& message : conversation.messages) {
    add_header(prompt, role_name(message.role));
    if (options.dated_system && message.role == Role::system) prompt.plain(kDateLines);
    prompt.plain(trimmed(message.content.text));
    prompt.control("<|eot_id|>");
  }
  add_header(prompt, "assistant");
  return prompt;
}

}  // namespace

Layout llama3_layout(const LayoutEvidence& evidence) {
  Layout layout{
      .name = "llama3", .turn_ends = {"<|eot_id|>"}, .options = {}, .render_with = render};
  layout.options.dated_system =
      evidence.chat_template.find("Cutting Knowledge Date") != std::string_view::npos;
  return layout;
}

}  // namespace deepinfer::recipe
