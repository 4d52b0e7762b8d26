#pragma once

// Layout: how one family of models wants a conversation written. choose_layout() finds it by what
// the checkpoint says about itself.
//
//   Layout layout = TRY(choose_layout({.chat_template = text, .family = "llama"}, &tokenizer));
//   PromptPieces prompt = TRY(layout.render(conversation));
//
// Templates are recognised by their markers, never executed. A layout renders all messages and then
// the header of the assistant's next one. Sources: the chat templates that the models publish.
//
// Threads: plain values and pure functions.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "recipe/conversation.h"
#include "recipe/prompt_pieces.h"
#include "text/tokenizer.h"

namespace deepinfer::recipe {

// What differs between the members of one layout.
struct LayoutOptions {
  std::string default_system;   // the system line when the conversation has none; empty: none
  bool dated_system = false;    // Llama 3.1 and later: knowledge and date lines
  bool opens_thinking = false;  // the assistant's header ends in "<think>\n"
  bool drops_thinking = false;  // earlier answers lose everything up to "</think>"
  bool operator==(const LayoutOptions&) const = default;
};

struct Layout {
  std::string_view name;  // "chatml", "llama3", "deepseek-r1"
  // Control tokens that end the assistant's turn: stop ids, beside those of the model.
  std::vector<std::string_view> turn_ends;
  LayoutOptions options;
  Result<PromptPieces> (*render_with)(const Conversation&, const LayoutOptions&) = nullptr;

  // Fails (invalid) without messages, or when a role is not one the layout knows.
  Result<PromptPieces> render(const Conversation& conversation) const {
    return render_with(conversation, options);
  }
};

struct LayoutEvidence {
  std::string_view chat_template;  // may be empty
  std::string_view family;         // "llama", "qwen2", "qwen3"
};

// The template's markers decide; without a template, the control tokens of the tokenizer (may be
// null). Fails with `unsupported` when neither is known.
Result<Layout> choose_layout(const LayoutEvidence& evidence, const text::Tokenizer* tokenizer);

// Shared by the layouts: the messages are there, roles are known, and a system message is the
// first one only.
Result<void> check_conversation(const Conversation& conversation);

// What follows the last "</think>", without the line ends before it; all of it when there is none.
std::string_view without_thinking(std::string_view answer);

}  // namespace deepinfer::recipe
