#pragma once

// StopMatcher: finds the first stop string in text that arrives in pieces, wherever the pieces are
// cut, and holds back exactly what could still become one.
//
//   StopMatcher matcher({"\n\nUser:"});
//   send(matcher.push("Hello\n"));       // "Hello": the line end may start the stop string
//   if (matcher.stopped()) cancel();
//   send(matcher.flush());               // at the end: what was held back
//
// The stop string itself and all that follows is never returned. When several stop strings end in
// the same piece the one that starts first wins. Time: text length times the total length of the
// stop strings at worst.
//
// Threads: one at a time.

#include <string>
#include <string_view>
#include <vector>

namespace deepinfer::llm {

class StopMatcher {
 public:
  // Empty stop strings are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  // The text that is now known to stand before any stop string. Nothing after stopped().
  std::string push(std::string_view text);
  // What was held back; empty after stopped().
  std::string flush();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace deepinfer::llm
