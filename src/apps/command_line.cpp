#include "apps/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <deque>
#include <map>

#include "apps/command.h"
#include "apps/terminal.h"
#include "apps/version.h"
#include "base/log.h"

extern char** environ;

namespace deepinfer::apps {
namespace {

using Texts = std::vector<std::string>;

// One command on the command line: the options it has, and the words given for each.
struct Parsed {
  std::unique_ptr<Command> command;
  OptionTable table;
  CLI::App* app = nullptr;
  std::map<std::string, Texts> words;  // by option; node addresses are stable for CLI11
  std::string config;
  std::deque<std::string> arguments;  // by positional; empty: not given
};

// "N", "X", "TEXT" or the choices.
std::string value_name(const OptionTable::Entry& entry) {
  if (!entry.rule.choices.empty()) return fmt::format("{}", fmt::join(entry.rule.choices, "|"));
  if (std::holds_alternative<double*>(entry.target)) return "X";
  if (std::holds_alternative<int64_t*>(entry.target) ||
      std::holds_alternative<size_t*>(entry.target))
    return "N";
  return "TEXT";
}

std::string default_text(const OptionTable::Entry& entry) {
  if (const auto* text = std::get_if<std::string*>(&entry.target); text && !(**text).empty())
    return " [" + **text + "]";
  if (const auto* real = std::get_if<double*>(&entry.target)) return fmt::format(" [{}]", **real);
  if (const auto* count = std::get_if<size_t*>(&entry.target); count && **count != 0)
    return fmt::format(" [{}]", **count);
  return {};
}

void add_options(Parsed& parsed) {
  for (const OptionTable::Entry& entry : parsed.table.entries()) {
    Texts& words = parsed.words[entry.name];
    const std::string dashed = "--" + entry.name;
    if (std::holds_alternative<bool*>(entry.target)) {
      parsed.app->add_flag_callback(
          dashed, [&words] { words.assign(1, "true"); }, entry.description);
      continue;
    }
    parsed.app->add_option(dashed, words, entry.description + default_text(entry))
        ->expected(1)
        ->allow_extra_args(false)  // else "[1, 2]" would become two words
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->type_name(value_name(entry));
  }
  parsed.app->add_option("--config", parsed.config, "read options from this TOML file")
      ->type_name("FILE");
}

void add_command(CLI::App& program, Parsed& parsed) {
  const Command& command = *parsed.command;
  parsed.app = program.add_subcommand(std::string(command.name()), std::string(command.summary()));
  parsed.app->allow_extras();
  parsed.command->declare(parsed.table);
  for (std::string_view name : command.positionals()) {
    parsed.app->add_option(std::string(name), parsed.arguments.emplace_back())->type_name("");
  }
  add_options(parsed);
  parsed.app->footer("Example:\n" + std::string(command.example()));
}

// The configuration file may hold options of every command: those of others are accepted, checked
// and not used.
void add_foreign_options(const std::vector<std::unique_ptr<Parsed>>& all, Parsed& chosen) {
  for (const auto& other : all) {
    for (const OptionTable::Entry& entry : other->table.entries()) {
      if (!chosen.table.has(entry.name))
        chosen.table.add(entry.name, entry.target, entry.description, entry.rule);
    }
  }
}

std::vector<std::string_view> own_variables(const Parsed& parsed) {
  std::vector<std::string_view> own;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    for (const auto& [option, words] : parsed.words) {
      if (OptionTable::variable_of(option) == name) own.push_back(text);
    }
  }
  return own;
}

Result<void> fill_options(const std::vector<std::unique_ptr<Parsed>>& all, Parsed& chosen) {
  for (const std::string& rest : chosen.app->remaining()) {
    const bool dashed = rest.size() > 1 && rest[0] == '-';
    return Error::invalid(rest, dashed ? "unknown option" : "unexpected argument",
                          fmt::format("deepinfer {} --help", chosen.command->name()));
  }
  std::string config = chosen.config;
  if (const char* variable = std::getenv("DEEPINFER_CONFIG"); config.empty() && variable != nullptr)
    config = variable;
  add_foreign_options(all, chosen);
  if (!config.empty()) TRY(chosen.table.load_file(config));
  TRY(chosen.table.load_environment(own_variables(chosen)));
  for (const OptionTable::Entry& entry : chosen.table.entries()) {
    const auto given = chosen.words.find(entry.name);
    if (given == chosen.words.end() || given->second.empty()) continue;
    // As text a list has commas between its items; on the command line each word is one item.
    if (const auto* list = std::get_if<Texts*>(&entry.target)) {
      **list = given->second;
    } else {
      TRY(chosen.table.set(entry.name, given->second.back()));
    }
  }
  return {};
}

Result<int> run_chosen(const std::vector<std::unique_ptr<Parsed>>& all, Parsed& chosen) {
  TRY(fill_options(all, chosen));
  for (const OptionTable::Entry& entry : chosen.table.entries()) {
    if (entry.name != "log-level") continue;
    LogSettings log;
    log.level =
        log_level_from_name(**std::get_if<std::string*>(&entry.target)).value_or(LogLevel::warning);
    configure_log(log);
  }
  std::vector<std::string> arguments;
  for (const std::string& word : chosen.arguments) {
    if (!word.empty()) arguments.push_back(word);
  }
  return chosen.command->run(arguments);
}

int usage_error(const std::string& thing, const std::string& what, const std::string& hint) {
  print_error(Error::invalid(thing, what, hint));
  return kBadInput;
}

// CLI11 reports help and version as errors, too.
int explain_parse_error(CLI::App& program, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return program.exit(error);
  return usage_error("command line", error.what(), "deepinfer --help");
}

}  // namespace

int run_program(int argc, const char* const* argv) {
  CLI::App program("deepinfer answers with language models on this machine.", "deepinfer");
  program.set_version_flag("--version", version_text());
  program.allow_extras();
  program.require_subcommand(0, 1);
  program.footer(
      "deepinfer COMMAND --help tells more. Example:\n"
      "  deepinfer generate smollm2 --chat --prompt 'Why is the sky blue?'");
  std::vector<std::unique_ptr<Parsed>> all;
  for (std::unique_ptr<Command>& command : make_commands()) {
    all.push_back(std::make_unique<Parsed>());
    all.back()->command = std::move(command);
    add_command(program, *all.back());
  }
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return explain_parse_error(program, error);
  }
  Parsed* chosen = nullptr;
  for (const auto& parsed : all) {
    if (parsed->app->parsed()) chosen = parsed.get();
  }
  if (const auto rest = program.remaining(); !rest.empty() && chosen == nullptr) {
    std::string known;
    for (const auto& parsed : all) known += " " + std::string(parsed->command->name());
    return usage_error(rest.front(), "is not a command", "commands:" + known);
  }
  if (chosen == nullptr) {
    std::fputs(program.help().c_str(), stderr);
    return kBadInput;
  }
  const Result<int> result = run_chosen(all, *chosen);
  if (result.ok()) return result.value();
  print_error(result.error());
  return exit_code_of(result.error().kind);
}

}  // namespace deepinfer::apps
