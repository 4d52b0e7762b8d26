#pragma once

// Prompts from the command line, from files and from a pipe. Files are JSON lines:
//   {"prompt": "text"} or {"ids": [1, 2]} or {"messages": [{"role": ..., "content": ...}]}
// with sampling options beside them, and "images": ["a.png", ...] for as many placeholders (the
// model's image_token_id) among its ids, paths relative to the file. A file named *.txt, or a pipe
// that does not start with '{' or '[', has one prompt a line. Blank lines are left out.
//
// Errors name the file, the line and the field. Threads: any.

#include <string>
#include <vector>

#include "apps/settings.h"
#include "base/result.h"
#include "llm/llm.h"

namespace deepinfer::apps {

struct PromptLine {
  llm::Prompt prompt;
  std::string heading;  // what the person asked, for showing
  std::string place;    // "prompts.jsonl line 3", for errors
};

struct PromptRules {
  bool chat = false;  // texts become a user's message
  bool ids = false;   // prompts are ids, texts are "1 2 3" or "[1, 2, 3]"
};

Result<std::vector<PromptLine>> parse_prompts(const std::string& content, const std::string& name,
                                              const SamplingSettings& settings, PromptRules rules);
Result<PromptLine> prompt_from_text(const std::string& text, const std::string& place,
                                    const SamplingSettings& settings, PromptRules rules);

// "1 2 3", "1,2,3" or "[1, 2, 3]".
Result<std::vector<int32_t>> parse_ids(std::string_view text, const std::string& place);

struct IdsLine {
  std::vector<int32_t> ids;
  std::string place;
};
// Lines {"ids": [...]} or [...] of `score` and `perplexity`; path "-" is stdin.
Result<std::vector<IdsLine>> read_ids_file(const std::string& path);

// All of stdin, at most 1 GiB.
Result<std::string> read_stdin();

}  // namespace deepinfer::apps
