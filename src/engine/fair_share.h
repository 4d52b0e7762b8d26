#pragma once

// FairShare: who was served how much, so that users get equal shares however many requests each
// has.
//
// Threads: one thread at a time.

#include <cstdint>
#include <unordered_map>

namespace deepinfer::engine {

// Rows served so far of each user, over weight; the least served goes first. A newcomer starts with
// the least of those present, so nobody saves up turns.
class FairShare {
 public:
  double served(uint64_t user) const;
  void present(uint64_t user);
  void charge(uint64_t user, double rows, double weight);
  void forget(uint64_t user);  // no live sequence left

 private:
  std::unordered_map<uint64_t, double> served_;
};

}  // namespace deepinfer::engine
