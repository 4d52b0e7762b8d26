// deepinfer generate: all prompts through the engine together.

#include <fmt/format.h>

#include <algorithm>

#include "apps/answer_printer.h"
#include "apps/command.h"
#include "apps/interrupt.h"
#include "apps/open_model.h"
#include "apps/prompt_file.h"
#include "apps/settings.h"
#include "apps/speed_report.h"
#include "apps/terminal.h"
#include "base/file.h"

namespace deepinfer::apps {
namespace {

class GenerateCommand final : public Command {
 public:
  std::string_view name() const override { return "generate"; }
  std::string_view summary() const override { return "answer or continue prompts, all together"; }
  std::string_view example() const override {
    return "  deepinfer generate smollm2 --chat --prompts examples/prompts.jsonl\n"
           "  echo 'Once upon a time' | deepinfer generate smollm2 --max-tokens 40 --json";
  }
  std::vector<std::string_view> positionals() const override { return {"MODEL"}; }

  void declare(OptionTable& options) override {
    options.add("prompt", &prompt_, "one prompt; may be repeated");
    options.add("prompts", &prompts_, "file of prompts: JSON lines, or .txt with one a line");
    options.add("chat", &chat_, "prompts are questions: use the model's chat layout");
    options.add("ids", &ids_, "prompts are token ids");
    options.add("logprobs", &logprobs_, "with --json: the log-probability of each token");
    sampling_.declare(options);
    engine_.declare(options);
    output_.declare(options);
  }

  Result<int> run(const std::vector<std::string>& arguments) override {
    TRY(sampling_.take_deepinfer_variables());
    const std::vector<PromptLine> lines = TRY(read_prompts());
    const std::unique_ptr<llm::Llm> llm =
        TRY(open_model(model_of(arguments), engine_, output_.json));
    std::vector<llm::Prompt> prompts;
    for (const PromptLine& line : lines) {
      prompts.push_back(line.prompt);
      prompts.back().want_text = llm->tokenizer().ok() || !line.prompt.stop.empty();
    }
    AnswerPrinter printer(lines, form(lines.size()), logprobs_);
    InterruptScope interrupt;
    const std::vector<llm::Answer> answers = TRY(llm->generate(
        prompts, [&](const llm::Delta& delta) { printer.take(delta); }, &interrupt.flag()));
    const int code = report_errors(lines, answers);
    if (interrupt.interrupted()) return kInterrupted;
    if (!output_.json) report_speed(*llm, lines.size());
    return code;
  }

 private:
  Result<std::vector<PromptLine>> read_prompts() const {
    const PromptRules rules{.chat = chat_, .ids = ids_};
    if (!prompt_.empty() && !prompts_.empty())
      return Error::invalid("--prompt", "stands beside --prompts", "give one of them");
    if (!prompt_.empty()) {
      std::vector<PromptLine> lines;
      for (const std::string& text : prompt_)
        lines.push_back(TRY(prompt_from_text(text, "--prompt", sampling_, rules)));
      return lines;
    }
    if (!prompts_.empty())
      return parse_prompts(TRY(read_file(prompts_)), prompts_, sampling_, rules);
    if (stdin_is_terminal()) {
      return Error::invalid("prompt", "there is none", "--prompt TEXT, --prompts FILE, or a pipe");
    }
    return parse_prompts(TRY(read_stdin()), "stdin", sampling_, rules);
  }

  AnswerPrinter::Form form(size_t prompt_count) const {
    if (output_.json) return AnswerPrinter::Form::json;
    const bool headings = prompt_count > 1 || stdout_is_terminal();
    return headings ? AnswerPrinter::Form::headings : AnswerPrinter::Form::plain;
  }

  // A refused prompt is bad input, whatever became of the others.
  static int report_errors(const std::vector<PromptLine>& lines,
                           const std::vector<llm::Answer>& answers) {
    int code = kDone;
    for (size_t i = 0; i < answers.size(); ++i) {
      if (!answers[i].error) continue;
      Error error = *answers[i].error;
      error.thing = lines[i].place + ": " + error.thing;
      print_error(error);
      code = std::max(code, exit_code_of(error.kind));
    }
    return code;
  }

  static void report_speed(llm::Llm& llm, size_t prompt_count) {
    const llm::Speed& speed = llm.speed();
    if (speed.prompt_tokens == 0) return;
    const double limit = speed.decode_steps > 0 ? measure_read_gb_per_s(llm.pool()) : 0;
    const std::string text = fmt::format(
        "{} prompt{}, {} threads: {}", prompt_count, prompt_count == 1 ? "" : "s",
        llm.pool().thread_count(), speed_text(speed, llm.model().weight_bytes_per_step(), limit));
    fmt::print(stderr, "{}\n", Style(2).dim(text));
  }

  std::vector<std::string> prompt_;
  std::string prompts_;
  bool chat_ = false;
  bool ids_ = false;
  bool logprobs_ = false;
  SamplingSettings sampling_;
  EngineSettings engine_;
  OutputSettings output_;
};

}  // namespace

std::unique_ptr<Command> make_generate_command() { return std::make_unique<GenerateCommand>(); }

}  // namespace deepinfer::apps
