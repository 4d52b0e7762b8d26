#include "sampling/philox.h"

namespace deepinfer::sampling {
namespace {

// Multipliers and key increments of the paper, section 4.3.
constexpr uint64_t kMultiplier0 = 0xD2511F53;
constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

uint32_t low(uint64_t value) { return static_cast<uint32_t>(value); }
uint32_t high(uint64_t value) { return static_cast<uint32_t>(value >> 32); }

}  // namespace

std::array<uint32_t, 4> philox4x32(uint64_t seed, uint64_t counter_low, uint64_t counter_high) {
  std::array<uint32_t, 4> c = {low(counter_low), high(counter_low), low(counter_high),
                               high(counter_high)};
  uint32_t key0 = low(seed), key1 = high(seed);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * c[0];
    const uint64_t product1 = kMultiplier1 * c[2];
    c = {high(product1) ^ c[1] ^ key0, low(product1), high(product0) ^ c[3] ^ key1, low(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

double uniform(uint64_t seed, uint64_t position, Purpose purpose) {
  const auto words = philox4x32(seed, position, static_cast<uint64_t>(purpose));
  const uint64_t bits = uint64_t{words[0]} << 32 | words[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace deepinfer::sampling
