#include "models/deepseek_v41/numpy_random.h"

#include <array>
#include <bit>
#include <cstddef>

#include "base/check.h"

namespace deepinfer::models {
namespace {

constexpr std::size_t kPool = 4;

// One 32-bit word into the pool's arithmetic; `constant` walks on with every word.
uint32_t hash_word(uint32_t value, uint32_t& constant) {
  constexpr uint32_t kMultiplier = 0x931e8875;
  value ^= constant;
  constant *= kMultiplier;
  value *= constant;
  return value ^ (value >> 16);
}

uint32_t mix_words(uint32_t x, uint32_t y) {
  const uint32_t mixed = 0xca01f9ddu * x - 0x4973f715u * y;
  return mixed ^ (mixed >> 16);
}

// SeedSequence(seed).generate_state(4, uint64)
std::array<uint64_t, 4> seed_words(uint64_t seed) {
  const std::array<uint32_t, kPool> entropy = {static_cast<uint32_t>(seed),
                                               static_cast<uint32_t>(seed >> 32), 0, 0};
  std::array<uint32_t, kPool> pool{};
  uint32_t constant = 0x43b0d7e5;
  for (std::size_t i = 0; i < kPool; ++i) pool[i] = hash_word(entropy[i], constant);
  for (std::size_t from = 0; from < kPool; ++from) {
    for (std::size_t to = 0; to < kPool; ++to) {
      if (from != to) pool[to] = mix_words(pool[to], hash_word(pool[from], constant));
    }
  }
  std::array<uint64_t, 4> out{};
  constant = 0x8b51f9dd;
  for (std::size_t i = 0; i < 8; ++i) {
    uint32_t word = pool[i % kPool] ^ constant;
    constant *= 0x58f38ded;
    word *= constant;
    word ^= word >> 16;
    out[i / 2] |= uint64_t{word} << (32 * (i % 2));
  }
  return out;
}

}  // namespace

NumpyRandom::NumpyRandom(uint64_t seed) {
  const std::array<uint64_t, 4> words = seed_words(seed);
  increment_ = (((Wide{words[2]} << 64) | words[3]) << 1) | 1;
  step();
  state_ += (Wide{words[0]} << 64) | words[1];
  step();
}

void NumpyRandom::step() {
  constexpr Wide kMultiplier = (Wide{0x2360ed051fc65da4} << 64) | 0x4385df649fccf645;
  state_ = state_ * kMultiplier + increment_;
}

uint64_t NumpyRandom::next() {
  step();
  const uint64_t folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
  return std::rotr(folded, static_cast<int>(state_ >> 122));
}

uint64_t NumpyRandom::below(uint64_t bound) {
  if (bound == 1) return 0;
  check(bound - 1 > UINT32_MAX, "bound of a 64-bit draw");
  Wide product = Wide{next()} * bound;
  if (static_cast<uint64_t>(product) < bound) {
    const uint64_t threshold = (0 - bound) % bound;
    while (static_cast<uint64_t>(product) < threshold) product = Wide{next()} * bound;
  }
  return static_cast<uint64_t>(product >> 64);
}

}  // namespace deepinfer::models
