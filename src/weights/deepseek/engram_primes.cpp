#include "weights/deepseek/engram_primes.h"

#include <numeric>

namespace deepinfer::weights {
namespace {

bool is_prime(uint64_t number) {
  if (number < 4) return number > 1;
  if (number % 2 == 0) return false;
  for (uint64_t divisor = 3; divisor * divisor <= number; divisor += 2) {
    if (number % divisor == 0) return false;
  }
  return true;
}

}  // namespace

std::vector<std::vector<uint64_t>> engram_primes(const EngramConfig& engram) {
  const size_t tables = size_t{engram.max_ngram - 1} * engram.heads;
  std::vector<std::vector<uint64_t>> primes(engram.layers.size());
  uint64_t next = engram.vocab;
  for (std::vector<uint64_t>& layer : primes) {
    while (layer.size() < tables) {
      if (is_prime(next)) layer.push_back(next);
      ++next;
    }
  }
  return primes;
}

std::vector<uint64_t> engram_rows(const EngramConfig& engram) {
  std::vector<uint64_t> rows;
  for (const std::vector<uint64_t>& layer : engram_primes(engram)) {
    rows.push_back(std::accumulate(layer.begin(), layer.end(), uint64_t{0}));
  }
  return rows;
}

}  // namespace deepinfer::weights
