// A conversation: each line of stdin is a question. What was said is never computed again.
//
//   echo "Why is the sky blue?" | chat smollm2

#include <iostream>

#include "llm/chat_session.h"

using namespace deepinfer;

Result<void> run(const std::string& path) {
  llm::LlmOptions options;
  options.model.target.isa = TRY(kernels::choose_isa("auto"));
  const std::unique_ptr<llm::Llm> llm = TRY(llm::Llm::open(path, options));

  llm::Prompt settings;
  settings.max_tokens = 100;
  settings.sampling.temperature = 0.7f;
  settings.sampling.seed = 1;
  llm::ChatSession session(*llm, settings);
  for (std::string line; std::getline(std::cin, line);) {
    const llm::Answer answer = TRY(session.ask(
        line, [](std::string_view text) { std::cout << text << std::flush; }, nullptr));
    std::cout << "\n[" << answer.stats.cached_tokens << " of " << answer.stats.prompt_tokens
              << " tokens of the prompt were known]\n";
  }
  return {};
}

int main(int argc, char** argv) {
  const Result<void> done = run(argc > 1 ? argv[1] : "smollm2");
  if (!done.ok()) std::cerr << "error: " << done.error().text() << "\n";
  return done.ok() ? 0 : 1;
}
