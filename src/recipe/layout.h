#pragma once

// Layout: how one family of models wants a conversation written. choose_layout() finds it by what
// the checkpoint says about itself.
//
//   Layout layout = TRY(choose_layout({.chat_template = text, .family = "llama"}, &tokenizer));
//   PromptPieces prompt = TRY(layout.render(conversation));
//
// Templates are recognised by their markers, never executed. A layout renders all messages and then
// the header of the assistant's next one. Sources: the chat templates that the models publish; V4
// and V4.1 have none and are known by their family.
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
  std::string_view name;  // "chatml", "llama3", "deepseek-r1", "deepseek-v4", "deepseek-v4.1"
  // Control tokens that end the assistant's turn: stop ids, beside those of the model.
  std::vector<std::string_view> turn_ends;
  LayoutOptions options;
  Result<PromptPieces> (*render_with)(const Conversation&, const LayoutOptions&) = nullptr;

  // Fails (invalid) without messages, or with what the layout cannot write: the simple ones know
  // system, user and assistant, and no tools, images or formats.
  Result<PromptPieces> render(const Conversation& conversation) const {
    return render_with(conversation, options);
  }
};

struct LayoutEvidence {
  std::string_view chat_template;  // may be empty
  std::string_view family;         // "llama", "qwen2", "qwen3", "deepseek_v4", "deepseek_v41"
};

// The family decides where it has one prompt format; else the template's markers; without a
// template, the control tokens of the tokenizer (may be null). Fails with `unsupported` when none
// is known.
Result<Layout> choose_layout(const LayoutEvidence& evidence, const text::Tokenizer* tokenizer);

// The layout of a family whose template is not at hand: chatml, smollm2, qwen2, qwen2.5, qwen3,
// llama3, llama3.1, deepseek_v3, deepseek_r1, deepseek_v4, deepseek_v41. Fails (invalid) with all
// names.
Result<Layout> named_layout(std::string_view name);

// Shared by the simple layouts: the messages are there, roles are known, a system message is the
// first one only, and nothing else is asked for.
Result<void> check_conversation(const Conversation& conversation);

// What follows the last "</think>", without the line ends before it; all of it when there is none.
std::string_view without_thinking(std::string_view answer);

}  // namespace deepinfer::recipe
