#pragma once

// What goes to people: errors, bold and dim text. Colours only on a terminal and never with
// NO_COLOR; the text is the same without them.
//
// Threads: the main thread.

#include <string>
#include <string_view>

#include "base/result.h"

namespace deepinfer::apps {

// "error: <thing>: <what> (<hint>)" and a newline on stderr.
void print_error(const Error& error);

// Writes all of it to stdout at once and flushes; false when nobody reads it any more.
bool write_out(std::string_view text);

class Style {
 public:
  // descriptor: 1 for stdout, 2 for stderr.
  explicit Style(int descriptor);
  std::string bold(std::string_view text) const;
  std::string dim(std::string_view text) const;
  bool on() const { return on_; }

 private:
  bool on_;
};

bool stdin_is_terminal();
bool stdout_is_terminal();

// One line of at most `columns` characters (code points): line ends become blanks, a cut is marked.
std::string one_line(std::string_view text, size_t columns);

// "98.4 MB", "1.2 GB": powers of ten.
std::string bytes_text(double bytes);

}  // namespace deepinfer::apps
