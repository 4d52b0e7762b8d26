#include "weights/safetensors/safetensors.h"

#include <gtest/gtest.h>

#include "weights/tiny_models.h"

namespace deepinfer::weights {
namespace {

Result<std::vector<TableEntry>> parse(const std::string& file) {
  return parse_safetensors(as_bytes(file), file.size(), "m.safetensors");
}

TEST(Safetensors, ReadsNamesDtypesShapesAndPlaces) {
  const std::string file = safetensors_file({{"a", DType::f32, {2, 4}},
                                             {"b", DType::bf16, {16}},
                                             {"scalar", DType::f64, {}},
                                             {"empty", DType::i64, {0, 3}},
                                             {"codes", DType::f4_e2m1, {2, 16}}});
  const std::vector<TableEntry> table = parse(file).value();
  ASSERT_EQ(table.size(), 5u);
  EXPECT_EQ(table[0].name, "a");
  EXPECT_EQ(table[0].dtype, DType::f32);
  EXPECT_EQ(table[0].shape, Shape({2, 4}));
  EXPECT_EQ(table[0].begin, file.size() - 32 - 32 - 8 - 16);
  EXPECT_EQ(table[1].begin, table[0].end());
  EXPECT_EQ(table[2].bytes, 8u);
  EXPECT_EQ(table[3].bytes, 0u);
  EXPECT_EQ(table[4].bytes, 16u);
  EXPECT_EQ(table[4].end(), file.size());
}

TEST(Safetensors, AcceptsNoTensors) { EXPECT_TRUE(parse(safetensors_file("{}", "")).ok()); }

TEST(Safetensors, RefusesEveryBrokenFileByName) {
  for (const nlohmann::json& line : broken_files("safetensors.jsonl")) {
    SCOPED_TRACE(line["name"]);
    const std::string header =
        line.contains("text") ? line["text"].get<std::string>() : line["header"].dump();
    const std::string file =
        safetensors_file(header, std::string(line["data"].get<size_t>(), '\0'));
    const Result<std::vector<TableEntry>> table = parse(file);
    expect_error(table, line["kind"].get<std::string>(), line["error"]);
    if (!table.ok()) {
      EXPECT_TRUE(table.error().thing.starts_with("m.safetensors"));
    }
  }
}

TEST(Safetensors, RefusesInvalidUtf8) {
  expect_error(parse(safetensors_file("{\"\xff\":1}", "")), "corrupt", {"UTF-8"});
}

TEST(Safetensors, RefusesEveryTruncation) {
  const std::string file = safetensors_file({{"a", DType::f32, {2, 4}}, {"b", DType::u8, {3}}});
  ASSERT_TRUE(parse(file).ok());
  for (size_t size = 0; size < file.size(); ++size) {
    // An allocation of that size, so that a read past it is seen by the sanitizer.
    const std::vector<char> cut(file.begin(), file.begin() + static_cast<ptrdiff_t>(size));
    const auto bytes = std::as_bytes(std::span(cut));
    EXPECT_FALSE(parse_safetensors(bytes, size, "m.safetensors").ok()) << size;
  }
}

TEST(Safetensors, ChecksTheHeaderLengthBeforeItReads) {
  expect_error(parse(raw<uint64_t>(uint64_t{1} << 62) + "{}"), "corrupt",
               {"4611686018427387904", "the file is 10"});
  expect_error(parse(raw<uint64_t>(~uint64_t{0}) + "{}"), "corrupt", {"18446744073709551615"});
  expect_error(parse(raw<uint64_t>(0)), "corrupt", {"'{'"});
  // A file said to be large enough does not lift the limit.
  const std::string head = raw<uint64_t>(kSafetensorsHeaderLimit + 1) + "{}";
  expect_error(parse_safetensors(as_bytes(head), uint64_t{1} << 40, "m"), "exhausted",
               {"100000001", "100000000"});
}

}  // namespace
}  // namespace deepinfer::weights
