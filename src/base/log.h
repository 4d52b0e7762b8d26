#pragma once

// Log lines on stderr, never on stdout: as text, or as one JSON object a line for collectors.
//
//   log_info("{}: {} tensors, {:.1f} GB", path, count, gigabytes);
//   12:03:04.512 info model.gguf: 272 tensors, 0.1 GB
//   {"time":"2026-01-31T12:03:04.512Z","level":"info","message":"model.gguf: ..."}
//
// A line is written by one system call, so that lines of several threads and processes do not mix.
// Errors of stderr are ignored: there is no better place to report them.
//
// Threads: any; configure_log() before the threads that log start.

#include <fmt/core.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace deepinfer {

enum class LogLevel { debug, info, warning, error, off };
enum class LogFormat { text, json };

struct LogSettings {
  LogLevel level = LogLevel::info;  // lines below it are dropped before they are formatted
  LogFormat format = LogFormat::text;
  int descriptor = 2;
  const Clock* clock = nullptr;  // nullptr: system_clock()
};

void configure_log(const LogSettings& settings);
bool log_enabled(LogLevel level);
std::string_view log_level_name(LogLevel level);
std::optional<LogLevel> log_level_from_name(std::string_view name);

// The line as it would be written, with its newline. Control characters of text lines are escaped,
// so that logged input cannot forge lines.
std::string log_line(LogFormat format, LogLevel level, int64_t wall_ns, std::string_view message);

void log_message(LogLevel level, std::string_view message);
void log_formatted(LogLevel level, fmt::string_view format, fmt::format_args arguments);

template <class... Arguments>
void log_debug(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (log_enabled(LogLevel::debug))
    log_formatted(LogLevel::debug, format, fmt::make_format_args(arguments...));
}
template <class... Arguments>
void log_info(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (log_enabled(LogLevel::info))
    log_formatted(LogLevel::info, format, fmt::make_format_args(arguments...));
}
template <class... Arguments>
void log_warning(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (log_enabled(LogLevel::warning))
    log_formatted(LogLevel::warning, format, fmt::make_format_args(arguments...));
}
template <class... Arguments>
void log_error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (log_enabled(LogLevel::error))
    log_formatted(LogLevel::error, format, fmt::make_format_args(arguments...));
}

}  // namespace deepinfer
