#pragma once

// Hashes: XXH3 for checksums and tables (fast, no protection against an adversary), SHA-256 for
// downloads and anything that must not collide on purpose.
//
//   std::string hex = TRY(sha256_file(path));  // 64 digits, lower case
//
// Threads: functions from any; a hasher is a plain value of one thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace deepinfer {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Hash128&) const = default;
};

uint64_t xxh3_64(std::span<const std::byte> bytes, uint64_t seed = 0);
Hash128 xxh3_128(std::span<const std::byte> bytes, uint64_t seed = 0);

// XXH3-64 in pieces: digest() of the pieces so far equals xxh3_64() of them in a row.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(Xxh3&& other) noexcept;
  Xxh3& operator=(Xxh3&& other) noexcept;

  void update(std::span<const std::byte> bytes);
  uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

using Sha256Digest = std::array<std::byte, 32>;

Sha256Digest sha256(std::span<const std::byte> bytes);
Sha256Digest sha256(std::string_view text);

// In pieces: update() any number of times, then finish() once.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&& other) noexcept;
  Sha256& operator=(Sha256&& other) noexcept;

  void update(std::span<const std::byte> bytes);
  Sha256Digest finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Lower-case digits, two a byte.
std::string hex(std::span<const std::byte> bytes);

// The digest of a file's content as hex, read in pieces of 1 MiB; `progress`, if given, gets the
// bytes done so far after each. Errors: as base/file.h.
Result<std::string> sha256_file(const std::string& path,
                                const std::function<void(uint64_t)>& progress = {});

}  // namespace deepinfer
