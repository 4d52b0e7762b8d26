#include "apps/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/progress.h"

namespace deepinfer::apps {

void print_error(const Error& error) {
  const Style style(2);
  const std::string line = style.bold("error:") + " " + error.text() + "\n";
  std::fflush(stdout);
  std::fputs(line.c_str(), stderr);
}

bool write_out(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

Style::Style(int descriptor) : on_(decorates(descriptor)) {}

std::string Style::bold(std::string_view text) const {
  return on_ ? fmt::format("\033[1m{}\033[0m", text) : std::string(text);
}

std::string Style::dim(std::string_view text) const {
  return on_ ? fmt::format("\033[2m{}\033[0m", text) : std::string(text);
}

bool stdin_is_terminal() { return isatty(STDIN_FILENO) == 1; }
bool stdout_is_terminal() { return isatty(STDOUT_FILENO) == 1; }

std::string one_line(std::string_view text, size_t columns) {
  std::string line;
  size_t used = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool starts_character = (byte & 0xC0) != 0x80;
    if (starts_character && used == columns) return line + "…";
    used += starts_character;
    line += byte < 0x20 || byte == 0x7F ? ' ' : text[i];
  }
  return line;
}

std::string bytes_text(double bytes) {
  if (bytes < 1e6) return fmt::format("{:.1f} kB", bytes / 1e3);
  if (bytes < 1e9) return fmt::format("{:.1f} MB", bytes / 1e6);
  return fmt::format("{:.2f} GB", bytes / 1e9);
}

}  // namespace deepinfer::apps
