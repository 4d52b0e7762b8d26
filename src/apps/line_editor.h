#pragma once

// Reads lines: with editing and history (libedit) when stdin and stdout are a terminal, plainly
// from a pipe.
//
// Threads: the main thread; one editor at a time.

#include <memory>
#include <optional>
#include <string>

namespace deepinfer::apps {

class LineEditor {
 public:
  explicit LineEditor(std::string prompt);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Without its line end; nullopt at the end of the input. Ctrl-C during editing clears the line,
  // and ends the input when the line was empty.
  std::optional<std::string> read();
  bool interactive() const { return editing_ != nullptr; }

 private:
  struct Editing;
  std::unique_ptr<Editing> editing_;
};

}  // namespace deepinfer::apps
