#pragma once

// Runs a program and collects what it prints. No shell: arguments are passed as they are.
//
//   ChildResult r = TRY(run_child({.argv = {"python3", "-m", "pip", "--version"}}));
//
// The program is looked up in PATH, reads /dev/null, and inherits the environment plus
// `environment`. It shares the terminal's process group, so Ctrl-C reaches it too.
//
// Errors: not_found when there is no such program, io when the system refuses a process.
// Threads: any.

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace deepinfer::llm {

struct ChildCommand {
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // "NAME=value", before the inherited ones
  // Called about five times a second while it runs; false ends the child (SIGTERM).
  std::function<bool()> still_wanted;
};

struct ChildResult {
  int exit_code = 0;     // 128 + signal when a signal ended it
  std::string output;    // stdout, at most 1 MiB
  std::string errors;    // stderr, at most 1 MiB
  bool stopped = false;  // still_wanted said no
};

Result<ChildResult> run_child(const ChildCommand& command);

}  // namespace deepinfer::llm
