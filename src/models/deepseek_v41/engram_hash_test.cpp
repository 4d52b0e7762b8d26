// Engram's numbers against those of the Flash configuration, and what a bad engram.json says.

#include "models/deepseek_v41/engram_hash.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <sstream>

#include "models/deepseek_v41/numpy_random.h"
#include "tests/golden_file.h"

namespace deepinfer::models {
namespace {

weights::EngramConfig flash() {
  return {.layers = {1, 14},
          .max_ngram = 4,
          .vocab = 16000000,
          .heads = 8,
          .head_dim = 256,
          .pad_id = 2,
          .compressed_vocab = 99092};
}

// Every id its own class, so that golden ids are classes.
EngramHash flash_hash() {
  std::vector<int32_t> map(99092);
  std::iota(map.begin(), map.end(), 0);
  Result<EngramHash> hash = EngramHash::create(flash(), 99092, std::move(map));
  EXPECT_TRUE(hash.ok()) << hash.error().text();
  return std::move(hash).value();
}

TEST(EngramHash, FlashNumbers) {
  const GoldenFile golden("deepseek_v41/units.safetensors");
  const EngramHash hash = flash_hash();
  const std::vector<std::string> layers = {"1", "14"};
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto primes = golden["flash_engram_primes." + layers[i]].as<int32_t>();
    EXPECT_EQ(hash.primes(i), std::vector<uint64_t>(primes.begin(), primes.end()));
    const auto multipliers = golden["flash_engram_multipliers." + layers[i]].as<int64_t>();
    EXPECT_EQ(hash.multipliers(i), std::vector<uint64_t>(multipliers.begin(), multipliers.end()));
  }
  EXPECT_EQ(hash.table_rows(0), 384006168u);
  EXPECT_EQ(hash.table_rows(1), 384016682u);
}

TEST(EngramHash, FlashRows) {
  const GoldenFile golden("deepseek_v41/units.safetensors");
  const EngramHash hash = flash_hash();
  const std::span<const int32_t> ids = golden["flash_engram_ids"].as<int32_t>();
  for (size_t layer : {0, 1}) {
    const auto expected =
        golden[layer == 0 ? "flash_engram_rows.1" : "flash_engram_rows.14"].as<int32_t>();
    for (size_t t = 0; t < ids.size(); ++t) {
      std::vector<int32_t> classes(4, EngramHash::kDead);
      for (size_t i = 0; i < 4 && i <= t; ++i) classes[i] = ids[t - i];
      std::vector<uint64_t> rows(hash.rows_per_position());
      hash.rows(layer, classes, rows.data());
      for (size_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(static_cast<int32_t>(rows[i]), expected[t * rows.size() + i])
            << "id " << t << " column " << i;
      }
    }
  }
}

// From the first image position backwards everything is the pad.
TEST(EngramHash, AnImageHidesWhatLiesBeforeIt) {
  const EngramHash hash = flash_hash();
  const auto rows = [&](std::vector<int32_t> classes) {
    std::vector<uint64_t> out(hash.rows_per_position());
    hash.rows(0, classes, out.data());
    return out;
  };
  constexpr int32_t dead = EngramHash::kDead, pad = 2;
  EXPECT_EQ(rows({7, dead, 9, 11}), rows({7, pad, pad, pad}));
  EXPECT_EQ(rows({7, 8, dead, 11}), rows({7, 8, pad, pad}));
  EXPECT_EQ(rows({dead, 8, 9, 11}), rows({pad, pad, pad, pad}));
  EXPECT_NE(rows({7, 8, 9, 11}), rows({7, 8, 9, pad}));
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

weights::EngramConfig tiny() {
  return {.layers = {1, 4},
          .max_ngram = 4,
          .vocab = 40,
          .heads = 2,
          .head_dim = 32,
          .pad_id = 2,
          .compressed_vocab = 400};
}

TEST(EngramHash, SideFileEqualsWhatIsComputed) {
  const std::string folder = std::string(DEEPINFER_SOURCE_DIR) + "/tests/golden/deepseek_v41/base";
  Result<EngramHash> hash =
      EngramHash::parse(tiny(), 512, text_of(folder + "/engram.json"), "engram.json");
  ASSERT_TRUE(hash.ok()) << hash.error().text();
  std::vector<int32_t> map(512);
  for (size_t id = 0; id < map.size(); ++id) {
    map[id] = hash.value().class_of(static_cast<int32_t>(id));
  }
  Result<EngramHash> computed = EngramHash::create(tiny(), 512, map);
  ASSERT_TRUE(computed.ok()) << computed.error().text();
  for (size_t layer : {0, 1}) {
    EXPECT_EQ(computed.value().primes(layer), hash.value().primes(layer));
    EXPECT_EQ(computed.value().multipliers(layer), hash.value().multipliers(layer));
  }
}

TEST(EngramHash, BadSideFilesAreNamed) {
  const auto error = [](const std::string& json) {
    weights::EngramConfig config = tiny();
    config.layers = {1};
    config.max_ngram = 2;
    config.heads = 1;
    config.pad_id = 0;
    Result<EngramHash> hash = EngramHash::parse(config, 2, json, "engram.json");
    return hash.ok() ? std::string("accepted") : hash.error().text();
  };
  const auto file = [](const std::string& map, const std::string& multipliers,
                       const std::string& primes) {
    return R"({"token_map":)" + map + R"(,"multipliers":)" + multipliers + R"(,"primes":)" +
           primes + "}";
  };
  EXPECT_EQ(error(file("[0,1]", R"({"1":[3,5]})", R"({"1":[41]})")), "accepted");
  EXPECT_NE(error("{").find("engram.json"), std::string::npos);
  EXPECT_NE(error(file("[0]", R"({"1":[3,5]})", R"({"1":[41]})")).find("1 ids, the vocabulary 2"),
            std::string::npos);
  EXPECT_NE(error(file("[0,400]", R"({"1":[3,5]})", R"({"1":[41]})")).find("class 400"),
            std::string::npos);
  EXPECT_NE(error(file("[0,1]", R"({"1":[3]})", R"({"1":[41]})")).find("there are 1"),
            std::string::npos);
  EXPECT_NE(error(file("[0,1]", R"({"1":[3,5]})", R"({"1":[0]})")).find("0 is no such number"),
            std::string::npos);
  EXPECT_NE(
      error(file("[0,1]", R"({"1":[3,9223372036854775807]})", R"({"1":[41]})")).find("overflows"),
      std::string::npos);
  EXPECT_NE(error(file("[0,1]", R"({"2":[3,5]})", R"({"1":[41]})")).find("1"), std::string::npos);
}

}  // namespace
}  // namespace deepinfer::models
