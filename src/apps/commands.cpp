#include "apps/command.h"

namespace deepinfer::apps {

std::vector<std::unique_ptr<Command>> make_commands() {
  std::vector<std::unique_ptr<Command>> all;
  all.push_back(make_generate_command());
  all.push_back(make_chat_command());
  all.push_back(make_score_command());
  all.push_back(make_perplexity_command());
  all.push_back(make_tokenize_command());
  all.push_back(make_recipe_command());
  all.push_back(make_inspect_command());
  all.push_back(make_plan_command());
  all.push_back(make_pack_command());
  all.push_back(make_bench_command());
  all.push_back(make_selftest_command());
  return all;
}

int exit_code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid:
    case ErrorKind::not_found:
    case ErrorKind::corrupt:
    case ErrorKind::unsupported:
      return kBadInput;
    case ErrorKind::io:
    case ErrorKind::exhausted:
    case ErrorKind::internal:
      return kFailed;
    case ErrorKind::cancelled:
      return kInterrupted;
  }
  return kFailed;
}

}  // namespace deepinfer::apps
