#include "llm/prompt.h"

namespace deepinfer::llm {

double Answer::mean_logprob() const {
  if (logprobs.empty()) return 0;
  double sum = 0;
  for (float logprob : logprobs) sum += logprob;
  return sum / static_cast<double>(logprobs.size());
}

Result<void> check_prompt(const Prompt& prompt) {
  const auto refuse = [](const std::string& what, const std::string& hint) {
    return Error::invalid("prompt", what, hint);
  };
  if (prompt.choices == 0) return refuse("asks for 0 choices", "1 is the least");
  if (prompt.best_of != 0 && prompt.best_of < prompt.choices) {
    return refuse(
        "best_of is " + std::to_string(prompt.best_of) + ", n is " + std::to_string(prompt.choices),
        "best_of is how many are computed, n how many of them are returned");
  }
  if (prompt.best_of > prompt.choices && !prompt.sampling.want_logprob &&
      prompt.sampling.top_logprobs == 0) {
    return refuse("best_of " + std::to_string(prompt.best_of) +
                      " ranks by log-probabilities, which are not wanted",
                  "leave one of them out");
  }
  if (prompt.replay_tokens != 0 && prompt.resume != engine::Resume::replay) {
    return refuse(
        "replay_tokens is " + std::to_string(prompt.replay_tokens) + ", resume is not \"replay\"",
        "give both or none of them");
  }
  if (!prompt.stop.empty() && !prompt.want_text) {
    return refuse("has stop strings, and no text is wanted", "use stop ids");
  }
  return {};
}

Error prompt_error(Error error) {
  if (error.thing.starts_with("request ")) error.thing = "prompt";
  return error;
}

}  // namespace deepinfer::llm
