#include "engine/fair_share.h"

#include <algorithm>

#include "base/check.h"

namespace deepinfer::engine {

double FairShare::served(uint64_t user) const {
  const auto found = served_.find(user);
  return found == served_.end() ? 0 : found->second;
}

void FairShare::present(uint64_t user) {
  if (served_.contains(user)) return;
  double least = 0;
  bool first = true;
  for (const auto& [other, rows] : served_) {
    least = first ? rows : std::min(least, rows);
    first = false;
  }
  served_.emplace(user, least);
}

void FairShare::charge(uint64_t user, double rows, double weight) {
  check(weight > 0, "weight of a user");
  present(user);
  served_[user] += rows / weight;
}

void FairShare::forget(uint64_t user) { served_.erase(user); }

}  // namespace deepinfer::engine
