#pragma once

// Command: one word after the program's name. Each lives in its own file; commands.cpp lists them.
//
// Life: declare() binds the command's fields to the option table; the command line, DEEPINFER_*
// variables and a configuration file fill them (apps/command_line.h); run() does the work.
// run() returns the process's exit code, or an Error that the caller prints and turns into one.
//
// Threads: the main thread.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "base/result.h"

namespace deepinfer::apps {

class Command {
 public:
  virtual ~Command() = default;
  virtual std::string_view name() const = 0;
  virtual std::string_view summary() const = 0;  // one line
  virtual std::string_view example() const = 0;  // lines under --help
  // Names of the arguments without dashes; the caller may leave any of them out.
  virtual std::vector<std::string_view> positionals() const = 0;
  virtual void declare(OptionTable& options) = 0;
  // Arguments as given, at most positionals().size().
  virtual Result<int> run(const std::vector<std::string>& arguments) = 0;
};

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;    // the work failed
inline constexpr int kBadInput = 2;  // bad usage or bad input
inline constexpr int kInterrupted = 130;

int exit_code_of(ErrorKind kind);

// All commands, in the order of the help.
std::vector<std::unique_ptr<Command>> make_commands();

std::unique_ptr<Command> make_generate_command();
std::unique_ptr<Command> make_chat_command();
std::unique_ptr<Command> make_score_command();
std::unique_ptr<Command> make_perplexity_command();
std::unique_ptr<Command> make_tokenize_command();
std::unique_ptr<Command> make_recipe_command();
std::unique_ptr<Command> make_inspect_command();
std::unique_ptr<Command> make_plan_command();
std::unique_ptr<Command> make_pack_command();
std::unique_ptr<Command> make_bench_command();
std::unique_ptr<Command> make_selftest_command();

}  // namespace deepinfer::apps
