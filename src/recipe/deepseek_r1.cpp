#include "recipe/deepseek_r1.h"

namespace deepinfer::recipe {
namespace {

// The bars are U+FF5C, the low lines U+2581.
constexpr std::string_view kBegin = "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>";
constexpr std::string_view kEnd = "<\uFF5Cend\u2581of\u2581sentence\uFF5C>";
constexpr std::string_view kUser = "<\uFF5CUser\uFF5C>";
constexpr std::string_view kAssistant = "<\uFF5CAssistant\uFF5C>";

Result<PromptPieces> render(const Conversation& conversation, const LayoutOptions& options) {
  TRY(check_conversation(conversation));
  PromptPieces prompt;
  prompt.control(kBegin);
  for (const Message& message : conversation.messages) {
    if (message.role == Role::system) {
      prompt.plain(message.content.text);
    } else if (message.role == Role::user) {
      prompt.control(kUser);
      prompt.plain(message.content.text);
    } else {
      prompt.control(kAssistant);
      prompt.plain(without_thinking(message.content.text));
      prompt.control(kEnd);
    }
  }
  prompt.control(kAssistant);
  if (options.opens_thinking) {
    prompt.control("<think>");
    prompt.plain("\n");
  }
  return prompt;
}

}  // namespace

Layout deepseek_r1_layout(const LayoutEvidence& evidence) {
  Layout layout{.name = "deepseek-r1", .turn_ends = {kEnd}, .options = {}, .render_with = render};
  const std::string opening = std::string(kAssistant) + "<think>";
  layout.options.opens_thinking = evidence.chat_template.find(opening) != std::string_view::npos;
  layout.options.drops_thinking = true;
  return layout;
}

}  // namespace deepinfer::recipe
