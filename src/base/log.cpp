#include "base/log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>

#include "base/json_writer.h"

namespace deepinfer {
namespace {

constexpr std::string_view kNames[] = {"debug", "info", "warning", "error", "off"};

std::atomic<LogLevel> level_now{LogLevel::info};
LogSettings settings_now;

void write_line(std::string_view line) {
  while (!line.empty()) {
    const ssize_t written = ::write(settings_now.descriptor, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    line.remove_prefix(static_cast<size_t>(written));
  }
}

void append_visible(std::string& out, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
}

}  // namespace

void configure_log(const LogSettings& settings) {
  settings_now = settings;
  level_now.store(settings.level, std::memory_order_release);
}

bool log_enabled(LogLevel level) {
  return level != LogLevel::off && level >= level_now.load(std::memory_order_acquire);
}

std::string_view log_level_name(LogLevel level) { return kNames[static_cast<size_t>(level)]; }

std::optional<LogLevel> log_level_from_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

std::string log_line(LogFormat format, LogLevel level, int64_t wall_ns, std::string_view message) {
  const std::time_t seconds = static_cast<std::time_t>(wall_ns / 1'000'000'000);
  const int milliseconds = static_cast<int>(wall_ns / 1'000'000 % 1000);
  std::tm time{};
  ::gmtime_r(&seconds, &time);
  const std::string clock =
      fmt::format("{:02}:{:02}:{:02}.{:03}", time.tm_hour, time.tm_min, time.tm_sec, milliseconds);
  std::string out;
  if (format == LogFormat::text) {
    out = fmt::format("{} {} ", clock, log_level_name(level));
    append_visible(out, message);
  } else {
    JsonWriter json(out);
    json.begin_object();
    json.member("time", fmt::format("{:04}-{:02}-{:02}T{}Z", time.tm_year + 1900, time.tm_mon + 1,
                                    time.tm_mday, clock));
    json.member("level", log_level_name(level));
    json.member("message", message);
    json.end_object();
  }
  out += '\n';
  return out;
}

void log_message(LogLevel level, std::string_view message) {
  if (!log_enabled(level)) return;
  const Clock& clock = settings_now.clock ? *settings_now.clock : system_clock();
  write_line(log_line(settings_now.format, level, clock.wall_ns(), message));
}

void log_formatted(LogLevel level, fmt::string_view format, fmt::format_args arguments) {
  log_message(level, fmt::vformat(format, arguments));
}

}  // namespace deepinfer
