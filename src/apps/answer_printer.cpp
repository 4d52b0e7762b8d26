#include "apps/answer_printer.h"

#include <fmt/format.h>

namespace deepinfer::apps {
namespace {

constexpr size_t kHeadingColumns = 96;

}  // namespace

AnswerPrinter::AnswerPrinter(const std::vector<PromptLine>& prompts, Form form, bool logprobs)
    : prompts_(prompts), form_(form), logprobs_(logprobs), waiting_(prompts.size()) {}

void AnswerPrinter::take(const llm::Delta& delta) {
  Waiting& waiting = waiting_[delta.index];
  // One answer is shown as it comes; the further ones when they are there.
  if (delta.choice == 0) waiting.text += delta.text;
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
  for (size_t i = 0; i < answer.others.size(); ++i) {
    const std::string& text = answer.others[i].text;
    end += style_.dim(fmt::format("[answer {}]", i + 2)) + "\n" + text;
    if (!text.ends_with('\n')) end += "\n";
  }
  if (form_ == Form::headings) end += "\n";
  write_out(end);
}

// What each of several answers has of its own.
void AnswerPrinter::write_answer(JsonWriter& json, const llm::Answer& answer) const {
  json.member("text", answer.text);
  json.key("ids");
  json.begin_array();
  for (int32_t id : answer.ids) json.value(id);
  json.end_array();
  json.member("finish_reason", engine::finish_reason_name(answer.finish));
  json.member("completion_tokens", answer.stats.completion_tokens);
  if (!logprobs_) return;
  json.key("logprobs");
  json.begin_array();
  for (float logprob : answer.logprobs) json.value(logprob);
  json.end_array();
}

std::string AnswerPrinter::json_line(size_t index, const llm::Answer& answer) const {
  std::string line;
  JsonWriter json(line);
  json.begin_object();
  json.member("index", index);
  write_answer(json, answer);
  json.member("prompt_tokens", answer.stats.prompt_tokens);
  json.member("cached_tokens", answer.stats.cached_tokens);
  json.member("ttft_ms", answer.stats.ttft_ms);
  json.member("tpot_ms", answer.stats.tpot_ms);
  json.member("resume", answer.stats.resume);
  if (!answer.stats.not_reused.empty()) json.member("not_reused", answer.stats.not_reused);
  if (answer.stats.drafted > 0) {
    json.member("drafted_tokens", answer.stats.drafted);
    json.member("accepted_tokens", answer.stats.accepted);
  }
  if (answer.stats.preemptions > 0) json.member("preemptions", answer.stats.preemptions);
  if (!answer.others.empty()) {
    json.key("others");
    json.begin_array();
    for (const llm::Answer& other : answer.others) {
      json.begin_object();
      write_answer(json, other);
      json.end_object();
    }
    json.end_array();
  }
  if (answer.error) json.member("error", answer.error->text());
  json.end_object();
  return line;
}

}  // namespace deepinfer::apps
