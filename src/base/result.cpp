#include "base/result.h"

namespace deepinfer {

std::string Error::text() const {
  std::string out = thing;
  if (!out.empty() && !what.empty()) out += ": ";
  out += what;
  if (!hint.empty()) out += " (" + hint + ")";
  return out;
}

}  // namespace deepinfer
