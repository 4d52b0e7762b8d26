#include "apps/answer_printer.h"

#include <fmt/format.h>

#include "base/json_writer.h"

namespace deepinfer::apps {
namespace {

constexpr size_t kHeadingColumns = 96;

}  // namespace

AnswerPrinter::AnswerPrinter(const std::vector<PromptLine>& prompts, Form form, bool logprobs)
    : prompts_(prompts), form_(form), logprobs_(logprobs), waiting_(prompts.size()) {}

void AnswerPrinter::take(const llm::Delta& delta) {
  Waiting& waiting = waiting_[delta.index];
  waiting.text += delta.text;
  if (delta.answer != nullptr) waiting.answer = delta.answer;
  while (current_ < waiting_.size()) {
    Waiting& now = waiting_[current_];
    if (now.text.empty() && now.answer == nullptr) return;
    if (form_ != Form::json) {
      if (!opened_) open(current_);
      if (!now.text.empty()) {
        write_out(now.text);
        last_ = now.text.back();
        now.text.clear();
      }
    }
    if (now.answer == nullptr) return;
    close(current_, *now.answer);
    now.text.clear();
    opened_ = false;
    ++current_;
  }
}

void AnswerPrinter::open(size_t index) {
  opened_ = true;
  last_ = '\n';
  if (form_ != Form::headings) return;
  write_out(style_.bold("> " + one_line(prompts_[index].heading, kHeadingColumns)) + "\n");
}

void AnswerPrinter::close(size_t index, const llm::Answer& answer) {
  if (form_ == Form::json) {
    write_out(json_line(index, answer) + "\n");
    return;
  }
  std::string end = last_ == '\n' ? "" : "\n";
  if (style_.on() && answer.finish == engine::FinishReason::length)
    end += style_.dim(fmt::format("[cut after {} tokens]", answer.ids.size())) + "\n";
  if (form_ == Form::headings) end += "\n";
  write_out(end);
}

std::string AnswerPrinter::json_line(size_t index, const llm::Answer& answer) const {
  std::string line;
  JsonWriter json(line);
  json.begin_object();
  json.member("index", index);
  json.member("text", answer.text);
  json.key("ids");
  json.begin_array();
  for (int32_t id : answer.ids) json.value(id);
  json.end_array();
  json.member("finish_reason", engine::finish_reason_name(answer.finish));
  json.member("prompt_tokens", answer.stats.prompt_tokens);
  json.member("cached_tokens", answer.stats.cached_tokens);
  json.member("completion_tokens", answer.stats.completion_tokens);
  json.member("ttft_ms", answer.stats.ttft_ms);
  json.member("tpot_ms", answer.stats.tpot_ms);
  if (logprobs_) {
    json.key("logprobs");
    json.begin_array();
    for (float logprob : answer.logprobs) json.value(logprob);
    json.end_array();
  }
  if (answer.error) json.member("error", answer.error->text());
  json.end_object();
  return line;
}

}  // namespace deepinfer::apps
