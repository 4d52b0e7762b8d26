#pragma once

// CustomInput: the arguments of a custom tool's call, as they stream, to the text that the tool
// gets. The model writes {"input": "…"}: the client wants what is inside of the string. Arguments
// that begin in another way are sent as they are.
//
//   CustomInput input;
//   std::string more = input.push(arguments);  // often empty
//   more = input.finish();
//
// Escapes that JSON does not have, and halves of surrogate pairs, stay as they are spelled.
//
// Threads: one at a time.

#include <string>
#include <string_view>

namespace deepinfer::recipe {

class CustomInput {
 public:
  // What the arguments so far add to the text.
  std::string push(std::string_view arguments);
  // The arguments are over: what was held back, as it is.
  std::string finish();

 private:
  enum class State { opening, inside, behind, raw };

  std::string unescaped();

  State state_ = State::opening;
  std::string held_;  // the opening, or an escape that is not complete
};

}  // namespace deepinfer::recipe
