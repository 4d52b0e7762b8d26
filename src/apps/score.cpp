// deepinfer score: the log-probability of each next token.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/command.h"
#include "apps/forward_pass.h"
#include "apps/interrupt.h"
#include "apps/logits_file.h"
#include "apps/open_model.h"
#include "apps/prompt_file.h"
#include "apps/settings.h"
#include "apps/terminal.h"
#include "base/json_writer.h"
#include "base/progress.h"

namespace deepinfer::apps {
namespace {

std::string json_line(size_t index, const std::vector<int32_t>& ids, const llm::Scores& scores,
                      bool with_top) {
  std::string line;
  JsonWriter json(line);
  json.begin_object();
  json.member("index", index);
  json.key("ids");
  json.begin_array();
  for (int32_t id : ids) json.value(id);
  json.end_array();
  json.key("logprobs");
  json.begin_array();
  for (const sampling::Sampled& next : scores.next) json.value(next.logprob);
  json.end_array();
  if (with_top) {
    json.key("top");
    json.begin_array();
    for (const sampling::Sampled& next : scores.next) {
      json.begin_array();
      for (const auto& [id, logprob] : next.top) {
        json.begin_object();
        json.member("id", id);
        json.member("logprob", logprob);
        json.end_object();
      }
      json.end_array();
    }
    json.end_array();
  }
  if (scores.error) json.member("error", scores.error->text());
  json.end_object();
  return line;
}

std::string plain_line(size_t index, const llm::Scores& scores) {
  double sum = 0;
  for (const sampling::Sampled& next : scores.next) sum += static_cast<double>(next.logprob);
  const double mean = scores.next.empty() ? 0 : sum / static_cast<double>(scores.next.size());
  return fmt::format("{}: {} tokens scored, log-probability {:.4f}, mean {:.4f}, perplexity {:.4f}",
                     index, scores.next.size(), sum, mean, std::exp(-mean));
}

class ScoreCommand final : public Command {
 public:
  std::string_view name() const override { return "score"; }
  std::string_view summary() const override { return "log-probability of each next token"; }
  std::string_view example() const override {
    return "  echo '{\"ids\": [504, 3575, 282, 4649, 314]}' | deepinfer score smollm2 --ids - "
           "--json";
  }
  std::vector<std::string_view> positionals() const override { return {"MODEL"}; }

  void declare(OptionTable& options) override {
    options.add("ids", &ids_, "file of JSON lines {\"ids\": [...]}; - is stdin");
    options.add("top", &top_, "also the N most likely next ids", {.least = 0, .most = 20});
    options.add("logits-out", &logits_out_, "write the raw logits to this safetensors file");
    engine_.declare(options);
    output_.declare(options);
  }

  Result<int> run(const std::vector<std::string>& arguments) override {
    if (ids_.empty()) return Error::invalid("--ids", "is missing", "--ids FILE.jsonl, or --ids -");
    const std::vector<IdsLine> lines = TRY(read_ids_file(ids_));
    const std::unique_ptr<llm::Llm> llm =
        TRY(open_model(model_of(arguments), engine_, output_.json));
    std::vector<std::vector<int32_t>> sequences;
    size_t total = 0;
    for (const IdsLine& line : lines) {
      if (line.ids.empty()) return Error::invalid(line.place, "holds no ids");
      TRY(check_ids(llm->model().config(), line.ids, line.place));
      sequences.push_back(line.ids);
      total += line.ids.size() - 1;
    }
    InterruptScope interrupt;
    std::vector<llm::Scores> scores;
    {
      Progress bar("scoring", total, Progress::Unit::count, !output_.json && decorates(2));
      scores = TRY(llm->score(
          sequences, static_cast<int32_t>(top_), [&](size_t done) { bar.update(done); },
          &interrupt.flag()));
    }
    if (interrupt.interrupted()) return kInterrupted;
    int code = kDone;
    for (size_t i = 0; i < scores.size(); ++i) {
      write_out((output_.json ? json_line(i, sequences[i], scores[i], top_ > 0)
                              : plain_line(i, scores[i])) +
                "\n");
      if (!scores[i].error) continue;
      print_error(*scores[i].error);
      code = std::max(code, exit_code_of(scores[i].error->kind));
    }
    if (!logits_out_.empty()) TRY(write_logits(*llm, sequences));
    return code;
  }

 private:
  Result<void> write_logits(llm::Llm& llm, const std::vector<std::vector<int32_t>>& sequences) {
    std::vector<size_t> positions;
    for (const auto& ids : sequences) positions.push_back(ids.size());
    LogitsFile file = TRY(LogitsFile::create(logits_out_, positions, llm.model().config().vocab));
    for (const auto& ids : sequences) {
      TRY(run_chunks(llm.model(), ids, engine_.max_rows,
                     [&](size_t, uint64_t, std::span<const float> row) { file.add_row(row); }));
    }
    return file.finish();
  }

  std::string ids_;
  size_t top_ = 0;
  std::string logits_out_;
  EngineSettings engine_;
  OutputSettings output_;
};

}  // namespace

std::unique_ptr<Command> make_score_command() { return std::make_unique<ScoreCommand>(); }

}  // namespace deepinfer::apps
