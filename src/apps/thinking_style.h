#pragma once

// ThinkingStyle: shows what a model writes between <think> and </think> dimmed, without the tags,
// however the text is cut into pieces. Without a terminal the text stays as it is.
//
// Threads: one at a time.

#include <string>
#include <string_view>

#include "apps/terminal.h"

namespace deepinfer::apps {

class ThinkingStyle {
 public:
  // starts_thinking: the prompt ended in "<think>" already.
  ThinkingStyle(bool decorated, bool starts_thinking);

  std::string push(std::string_view text);
  // What was held back, and the end of dimming.
  std::string flush();

 private:
  bool decorated_;
  bool thinking_;
  bool dimmed_ = false;
  std::string held_;
};

}  // namespace deepinfer::apps
