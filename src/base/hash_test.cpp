#include "base/hash.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace deepinfer {
namespace {

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(Hash, Sha256EqualsThePublishedVectors) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Hash, Sha256InPiecesEqualsTheWhole) {
  const std::string text(1'000'000, 'a');
  const std::string want = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
  for (size_t piece : {1000, 4096, 999'999}) {
    Sha256 hasher;
    for (size_t at = 0; at < text.size(); at += piece) {
      hasher.update(bytes(std::string_view(text).substr(at, piece)));
    }
    Sha256 moved = std::move(hasher);
    EXPECT_EQ(hex(moved.finish()), want);
  }
}

TEST(Hash, FilesAreHashedInPiecesWithProgress) {
  const std::string path = testing::TempDir() + "deepinfer_hash_" + std::to_string(::getpid());
  std::ofstream(path) << std::string(3'000'000, 'x');
  uint64_t last = 0;
  size_t calls = 0;
  const auto digest = sha256_file(path, [&](uint64_t done) {
    EXPECT_GT(done, last);
    last = done;
    ++calls;
  });
  EXPECT_EQ(digest.value(), hex(sha256(std::string(3'000'000, 'x'))));
  EXPECT_EQ(last, 3'000'000u);
  EXPECT_EQ(calls, 3u);
  std::filesystem::remove(path);
  EXPECT_EQ(sha256_file(path).error().kind, ErrorKind::not_found);
}

TEST(Hash, Xxh3KnowsItsVectorsAndItsSeed) {
  EXPECT_EQ(xxh3_64({}), 0x2d06800538d394c2u);
  EXPECT_EQ(xxh3_128({}), (Hash128{0x6001c324468d497fu, 0x99aa06d3014798d8u}));
  EXPECT_NE(xxh3_64(bytes("abc")), xxh3_64(bytes("abd")));
  EXPECT_NE(xxh3_64(bytes("abc")), xxh3_64(bytes("abc"), 1));
}

TEST(Hash, Xxh3InPiecesEqualsTheWhole) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>('a' + i * 7 % 26);
  for (const size_t piece : {1u, 17u, 256u, 5000u}) {
    Xxh3 hash;
    for (size_t at = 0; at < text.size(); at += piece) hash.update(bytes(text.substr(at, piece)));
    EXPECT_EQ(hash.digest(), xxh3_64(bytes(text))) << piece;
  }
}

}  // namespace
}  // namespace deepinfer
