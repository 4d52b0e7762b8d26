#pragma once

// Parts that the prompts of DeepSeek V4 and V4.1 share, and where they differ: the tool section,
// call blocks, the response format, an assistant's turn, the header of the next one.
//
// Threads: a writer holds its prompt; one writer, one thread.

#include <span>
#include <string_view>
#include <vector>

#include "recipe/deepseek_prompt.h"

namespace deepinfer::recipe {

class DeepSeekWriter {
 public:
  DeepSeekWriter(const Conversation& conversation, DeepSeekVersion version,
                 const DeepSeekTokens& tokens);

  const Conversation& conversation;
  const DeepSeekTokens& tokens;
  PromptPieces prompt;

  // "## Tools" with the schemas of the conversation's tools.
  void tools_section();
  // Empty: there is none.
  std::string response_format() const;
  // One line for each tool, without deferred ones if `shown_only`, joined by line ends.
  std::string schema_lines(std::span<const Tool> tools, bool shown_only) const;
  void call_block(const std::vector<const ToolCall*>& calls);
  // "<tool_result>…</tool_result>" for a tool's message, the text of another's.
  void turn_part(const Message& message);
  // Closes the prompt: the header of the answer unless the last turn is to be continued, and the
  // open call block of a required call.
  void header(bool continued);

  // What an assistant's turn does with the thinking: left out, an empty close, or written.
  struct Thinking {
    bool open = false;   // <think> and the text
    bool close = false;  // </think>
  };
  // last: the turn stands at the end of the conversation. first: nothing was rendered before it.
  void assistant_turn(const Message& message, bool last, bool first);

 private:
  Thinking thinking_of(const Message& message, bool calls, bool first) const;
  // Writes a text of this file, in which {D} is the DSML token, {B} {I} {P} the names of the tags,
  // and <think>, </think> are control tokens.
  void pattern(std::string_view text);
  void parameter(std::string_view key, const Json& value);

  const bool v41_;
  const JsonStyle style_;
};

PromptPieces render_deepseek_v4(DeepSeekWriter writer);
PromptPieces render_deepseek_v41(DeepSeekWriter writer);

}  // namespace deepinfer::recipe
