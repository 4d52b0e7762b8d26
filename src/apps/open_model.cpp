#include "apps/open_model.h"

#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <set>

#include "base/progress.h"
#include "kernels/matmul.h"
#include "llm/model_path.h"

namespace deepinfer::apps {
namespace {

// One bar for each phase of a fetch.
class FetchBars {
 public:
  explicit FetchBars(bool quiet) : enabled_(!quiet && decorates(2)), quiet_(quiet) {}

  void show(std::string_view phase, uint64_t done, uint64_t total) {
    if (phase != phase_) {
      if (phase_.empty() && !quiet_)
        std::fputs("fetching the weights with pip, once; they stay in the cache\n", stderr);
      phase_ = phase;
      bar_.reset();
      bar_.emplace(std::string(phase), total, Progress::Unit::bytes, enabled_);
    }
    bar_->update(done);
  }

 private:
  bool enabled_;
  bool quiet_;
  std::string phase_;
  std::optional<Progress> bar_;
};

}  // namespace

Result<std::string> resolve_model_path(const std::string& model, bool quiet) {
  InterruptScope interrupt;
  FetchBars bars(quiet);
  llm::FetchObserver observer;
  observer.progress = [&](std::string_view phase, uint64_t done, uint64_t total) {
    bars.show(phase, done, total);
  };
  observer.still_wanted = [&] { return !interrupt.interrupted(); };
  return llm::resolve_model(model, observer);
}

Result<std::unique_ptr<llm::Llm>> open_model(const std::string& model,
                                             const EngineSettings& settings, bool quiet) {
  llm::LlmOptions options = TRY(settings.llm_options());
  const std::string path = TRY(resolve_model_path(model, quiet));
  std::optional<Progress> bar;
  options.load_progress = [&](size_t done, size_t total) {
    if (!bar) bar.emplace("loading", total, Progress::Unit::bytes, !quiet && decorates(2));
    bar->update(done);
  };
  Result<std::unique_ptr<llm::Llm>> opened = llm::Llm::open(path, options);
  bar.reset();
  if (opened.ok() && settings.explain) print_choices(opened.value()->model().choices());
  return opened;
}

void print_choices(const std::vector<kernels::Choice>& choices) {
  std::set<std::string> seen;
  for (const kernels::Choice& choice : choices) {
    std::string line = fmt::format("{}: {}", choice.operation, choice.chosen);
    for (const auto& [name, reason] : choice.refused)
      line += fmt::format("; not {}: {}", name, reason);
    if (seen.insert(line).second) fmt::print(stderr, "{}\n", line);
  }
}

}  // namespace deepinfer::apps
