#pragma once

// A table of typed options that a TOML file, DEEPINFER_* variables and the command line fill. The
// command line wins over the environment, the environment over the file, whichever is read first.
//
//   struct Settings { size_t threads = 0; std::string isa = "auto"; bool json = false; } settings;
//   OptionTable table;
//   table.add("threads", &settings.threads, "compute threads", {.least = 1, .most = 1024});
//   table.add("isa", &settings.isa, "instruction set", {.choices = {"auto", "avx2", "avx512"}});
//   table.add("json", &settings.json, "one JSON object a line");
//   TRY(table.load_file(path));
//   TRY(table.load_environment());
//   TRY(table.set("threads", "4"));   // from the command line
//
// Names are lower case with '-' between words and '.' between a table and its key: "max-rows" is
// DEEPINFER_MAX_ROWS and `max-rows = 4` or `max_rows = 4` in the file; "server.port" is
// DEEPINFER_SERVER_PORT and `port` of [server].
// Errors (ErrorKind::invalid; not_found, io for the file itself) name the option, where its value
// came from and both the wanted and the found value. An unknown key in the file is an error.
// DEEPINFER_* variables that name no option are left alone: other parts of the program read them.
//
// Ownership: targets outlive the table. Threads: one.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace deepinfer {

struct OptionRule {
  std::optional<double> least = std::nullopt;  // numbers
  std::optional<double> most = std::nullopt;   // numbers
  std::vector<std::string> choices = {};       // strings; empty: any
  bool bytes = false;  // size_t: takes "8GB", "512MiB", "1.5 GB" too (kB, MB, GB, TB; KiB, ...)
};

class OptionTable {
 public:
  enum class Source { none, file, environment, command_line };
  using Target = std::variant<bool*, int64_t*, size_t*, double*, std::string*,
                              std::vector<std::string>*>;  // a list: ',' between items as text

  // A name twice is a bug.
  void add(std::string name, Target target, std::string description, OptionRule rule = {});

  Result<void> load_file(const std::string& path);
  // `text` as if it were the content of the file called `name`.
  Result<void> load_toml(std::string_view text, const std::string& name);
  // The process's environment, or "NAME=value" entries.
  Result<void> load_environment();
  Result<void> load_environment(std::span<const std::string_view> entries);
  // A value from the command line. A bool accepts true, false, 1, 0, on, off, yes, no.
  Result<void> set(std::string_view name, std::string_view text);

  bool has(std::string_view name) const { return find(name) != nullptr; }
  // Where the value in force came from; none: the default. The option must exist.
  Source source(std::string_view name) const;

  static std::string variable_of(std::string_view name);  // "max-rows" -> "DEEPINFER_MAX_ROWS"

  struct Entry {
    std::string name;
    Target target;
    std::string description;
    OptionRule rule;
    Source source = Source::none;
  };
  std::span<const Entry> entries() const { return entries_; }

 private:
  friend class TomlWalk;
  Entry* find(std::string_view name);
  const Entry* find(std::string_view name) const;

  std::vector<Entry> entries_;
};

}  // namespace deepinfer
