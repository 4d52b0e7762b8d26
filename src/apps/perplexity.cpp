// deepinfer perplexity: negative log-likelihood of a text.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "apps/command.h"
#include "apps/forward_pass.h"
#include "apps/interrupt.h"
#include "apps/open_model.h"
#include "apps/prompt_file.h"
#include "apps/settings.h"
#include "apps/terminal.h"
#include "base/file.h"
#include "base/json_writer.h"
#include "base/progress.h"
#include "llm/model_path.h"

namespace deepinfer::apps {
namespace {

// Pieces of at most `context` ids; nothing is predicted across their borders.
std::vector<std::vector<int32_t>> windows_of(const std::vector<int32_t>& ids, size_t context) {
  std::vector<std::vector<int32_t>> windows;
  for (size_t at = 0; at < ids.size(); at += context) {
    const size_t end = std::min(at + context, ids.size());
    windows.emplace_back(ids.begin() + static_cast<ptrdiff_t>(at),
                         ids.begin() + static_cast<ptrdiff_t>(end));
  }
  return windows;
}

class PerplexityCommand final : public Command {
 public:
  std::string_view name() const override { return "perplexity"; }
  std::string_view summary() const override { return "negative log-likelihood of a text"; }
  std::string_view example() const override {
    return "  deepinfer perplexity smollm2 LICENSE\n"
           "  deepinfer perplexity smollm2 --ids text.jsonl --numerics exact --kv f32 --json";
  }
  std::vector<std::string_view> positionals() const override { return {"MODEL", "FILE"}; }

  void declare(OptionTable& options) override {
    options.add("ids", &ids_, "file of JSON lines {\"ids\": [...]} instead of a text; - is stdin");
    options.add("context", &context_,
                "ids of one pass; a longer text is cut into pieces (0: the model's limit)",
                {.least = 0, .most = 1e9});
    engine_.declare(options);
    output_.declare(options);
  }

  Result<int> run(const std::vector<std::string>& arguments) override {
    std::vector<std::string> names = arguments;
    // A single argument that is no model is the text for the default model.
    if (ids_.empty() && names.size() == 1 && !is_model(names[0]))
      names.insert(names.begin(), llm::default_model());
    if (ids_.empty() && names.size() < 2)
      return Error::invalid("FILE", "is missing", "a text file, or --ids FILE.jsonl");
    const std::string text = ids_.empty() ? TRY(read_file(names[1])) : "";
    std::vector<IdsLine> lines;
    if (!ids_.empty()) lines = TRY(read_ids_file(ids_));
    const std::unique_ptr<llm::Llm> llm = TRY(open_model(model_of(names), engine_, output_.json));
    if (ids_.empty()) {
      Result<std::vector<int32_t>> ids = llm->encode(text);
      if (!ids.ok()) return named(ids.error(), names[1]);
      lines.push_back({std::move(ids).value(), names[1]});
    }
    return measure(*llm, lines);
  }

 private:
  static bool is_model(const std::string& name) {
    std::error_code ignored;
    return llm::find_package_weights(name) != nullptr || name.ends_with(".gguf") ||
           std::filesystem::is_directory(name, ignored);
  }

  static Error named(Error error, const std::string& place) {
    error.thing = place + ": " + error.thing;
    return error;
  }

  Result<int> measure(llm::Llm& llm, const std::vector<IdsLine>& lines) const {
    const weights::ModelConfig& config = llm.model().config();
    if (context_ == 1 || context_ > config.context) {
      return Error::invalid("--context", fmt::format("{} is out of range", context_),
                            fmt::format("from 2 to the model's {}", config.context));
    }
    const size_t context = context_ != 0 ? context_ : config.context;
    std::vector<std::vector<int32_t>> windows;
    size_t predicted = 0;
    for (const IdsLine& line : lines) {
      if (line.ids.size() < 2) return Error::invalid(line.place, "has fewer than 2 tokens");
      for (std::vector<int32_t>& window : windows_of(line.ids, context)) {
        TRY(check_ids(config, window, line.place));
        predicted += window.size() - 1;
        windows.push_back(std::move(window));
      }
    }
    InterruptScope interrupt;
    double nll = 0;
    {
      Progress bar("perplexity", predicted, Progress::Unit::count, !output_.json && decorates(2));
      size_t before = 0;
      // One at a time: memory for one window, whatever the length of the text.
      for (const std::vector<int32_t>& window : windows) {
        const std::vector<llm::Scores> scores = TRY(llm.score(
            {&window, 1}, 0, [&](size_t done) { bar.update(before + done); }, &interrupt.flag()));
        if (interrupt.interrupted()) return kInterrupted;
        if (scores.front().error) return *scores.front().error;
        for (const sampling::Sampled& next : scores.front().next)
          nll -= static_cast<double>(next.logprob);
        before += window.size() - 1;
      }
    }
    const double perplexity = std::exp(nll / static_cast<double>(predicted));
    print(predicted, nll, perplexity, windows.size());
    return kDone;
  }

  void print(size_t predicted, double nll, double perplexity, size_t windows) const {
    if (!output_.json) {
      write_out(fmt::format("{} tokens in {} pass{}: nll {:.4f}, perplexity {:.4f}\n", predicted,
                            windows, windows == 1 ? "" : "es", nll, perplexity));
      return;
    }
    std::string line;
    JsonWriter json(line);
    json.begin_object();
    json.member("tokens", predicted);
    json.member("nll", nll);
    json.member("perplexity", perplexity);
    json.end_object();
    write_out(line + "\n");
  }

  std::string ids_;
  size_t context_ = 0;
  EngineSettings engine_;
  OutputSettings output_;
};

}  // namespace

std::unique_ptr<Command> make_perplexity_command() { return std::make_unique<PerplexityCommand>(); }

}  // namespace deepinfer::apps
