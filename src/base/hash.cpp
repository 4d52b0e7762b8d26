#include "base/hash.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "base/file.h"

namespace deepinfer {

uint64_t xxh3_64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Hash128 xxh3_128(std::span<const std::byte> bytes, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {hash.low64, hash.high64};
}

struct Xxh3::State {
  XXH3_state_t* state = ::XXH3_createState();
  ~State() { ::XXH3_freeState(state); }
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) {
  check(state_->state && ::XXH3_64bits_reset(state_->state) == XXH_OK, "XXH3 state");
}
Xxh3::~Xxh3() = default;
Xxh3::Xxh3(Xxh3&& other) noexcept = default;
Xxh3& Xxh3::operator=(Xxh3&& other) noexcept = default;

void Xxh3::update(std::span<const std::byte> bytes) {
  check(state_ && ::XXH3_64bits_update(state_->state, bytes.data(), bytes.size()) == XXH_OK,
        "XXH3 update");
}

uint64_t Xxh3::digest() const { return ::XXH3_64bits_digest(state_->state); }

namespace {

// Fetched once: the look-up costs more than hashing a short block.
const EVP_MD* algorithm() {
  static const EVP_MD* const fetched = [] {
    const EVP_MD* found = ::EVP_MD_fetch(nullptr, "SHA256", nullptr);
    return found ? found : ::EVP_sha256();
  }();
  return fetched;
}

}  // namespace

struct Sha256::State {
  EVP_MD_CTX* context = ::EVP_MD_CTX_new();
  ~State() { ::EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  check(state_->context && ::EVP_DigestInit_ex2(state_->context, algorithm(), nullptr) == 1,
        "SHA-256 is not available");
}

Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&& other) noexcept = default;
Sha256& Sha256::operator=(Sha256&& other) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  check(state_ && ::EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1,
        "SHA-256 update");
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  check(
      state_ && ::EVP_DigestFinal_ex(state_->context,
                                     reinterpret_cast<unsigned char*>(digest.data()), nullptr) == 1,
      "SHA-256 finish");
  state_.reset();
  return digest;
}

Sha256Digest sha256(std::span<const std::byte> bytes) {
  Sha256 hasher;
  hasher.update(bytes);
  return hasher.finish();
}

Sha256Digest sha256(std::string_view text) {
  return sha256(std::as_bytes(std::span(text.data(), text.size())));
}

std::string hex(std::span<const std::byte> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    out += kDigits[std::to_integer<unsigned>(byte) >> 4];
    out += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return out;
}

Result<std::string> sha256_file(const std::string& path,
                                const std::function<void(uint64_t)>& progress) {
  constexpr size_t kPiece = size_t{1} << 20;
  const MappedFile file = TRY(MappedFile::open(path));
  Sha256 hasher;
  for (size_t done = 0; done < file.bytes().size();) {
    const size_t piece = std::min(kPiece, file.bytes().size() - done);
    hasher.update(file.bytes().subspan(done, piece));
    file.advise_done(done, piece);
    done += piece;
    if (progress) progress(done);
  }
  return hex(hasher.finish());
}

}  // namespace deepinfer
