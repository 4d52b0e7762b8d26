#pragma once

// AnswerPrinter: many answers that come at the same time, shown one after the other. The first one
// that is not complete streams; the others wait in memory until it is their turn, so that the
// output has the order of the prompts.
//
// Threads: the main thread.

#include <string>
#include <vector>

#include "apps/prompt_file.h"
#include "apps/terminal.h"
#include "base/json_writer.h"
#include "llm/llm.h"

namespace deepinfer::apps {

class AnswerPrinter {
 public:
  enum class Form {
    plain,     // the answer's text alone
    headings,  // each below its prompt
    json,      // one object a line
  };

  AnswerPrinter(const std::vector<PromptLine>& prompts, Form form, bool logprobs);
  void take(const llm::Delta& delta);

 private:
  struct Waiting {
    std::string text;
    const llm::Answer* answer = nullptr;
  };
  void open(size_t index);
  void close(size_t index, const llm::Answer& answer);
  void write_answer(JsonWriter& json, const llm::Answer& answer) const;
  std::string json_line(size_t index, const llm::Answer& answer) const;

  const std::vector<PromptLine>& prompts_;
  Form form_;
  bool logprobs_;
  Style style_{1};
  std::vector<Waiting> waiting_;  // [prompts]
  size_t current_ = 0;
  bool opened_ = false;
  char last_ = '\n';
};

}  // namespace deepinfer::apps
