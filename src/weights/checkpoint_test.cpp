#include "weights/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "weights/tiny_models.h"

namespace deepinfer::weights {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kFirst = "model-00001-of-00002.safetensors";
constexpr const char* kSecond = "model-00002-of-00002.safetensors";

std::string index_of(const std::vector<std::pair<std::string, std::string>>& lines) {
  nlohmann::json map = nlohmann::json::object();
  for (const auto& [name, file] : lines) map[name] = file;
  return nlohmann::json({{"weight_map", map}}).dump();
}

TEST(Checkpoint, OpensOneSafetensorsFile) {
  const TempFolder folder;
  folder.write("config.json", "{}");
  folder.write("tokenizer.json", "{\"a\":1}");
  folder.write("model.safetensors",
               safetensors_file({{"b", DType::f32, {2, 2}, 5}, {"a", DType::u8, {3}, 6}}));
  Checkpoint opened = Checkpoint::open(folder.path()).value();
  const TensorView* before = opened.find("b");
  const Checkpoint checkpoint = std::move(opened);
  EXPECT_EQ(checkpoint.container(), Container::safetensors);
  ASSERT_EQ(checkpoint.tensors().size(), 2u);
  EXPECT_EQ(checkpoint.tensors()[0].name, "a");
  EXPECT_EQ(checkpoint.find("b"), before);
  EXPECT_EQ(before->shape, Shape({2, 2}));
  EXPECT_EQ(static_cast<int>(before->data[15]), 5);
  EXPECT_EQ(checkpoint.find("c"), nullptr);
  EXPECT_EQ(checkpoint.side_file("tokenizer.json"), "{\"a\":1}");
  EXPECT_EQ(checkpoint.side_file("generation_config.json"), std::nullopt);
  EXPECT_TRUE(checkpoint.metadata().empty());
}

TEST(Checkpoint, NamesWhatADirectoryLacks) {
  const TempFolder folder;
  expect_error(Checkpoint::open(folder.path()), "not_found", {folder.path(), "config.json"});
  folder.write("config.json", "{}");
  expect_error(Checkpoint::open(folder.path()), "not_found",
               {"neither model.safetensors nor model.safetensors.index.json"});
  expect_error(Checkpoint::open(folder.path() + "/nothing"), "not_found", {"nothing"});
  const std::string file = folder.write("model.safetensors", safetensors_file("{}", ""));
  expect_error(Checkpoint::open(file), "invalid", {"name the directory"});
  expect_error(Checkpoint::open("/dev/null"), "invalid", {"/dev/null"});
}

TEST(Checkpoint, NamesAConfigThatCannotBeRead) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.path() + "/config.json");
  folder.write("model.safetensors", safetensors_file("{}", ""));
  const Result<Checkpoint> opened = Checkpoint::open(folder.path());
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().text().find("config.json"), std::string::npos);
}

// Two shards as the index says.
class Shards : public testing::Test {
 protected:
  void SetUp() override {
    folder.write("config.json", "{}");
    folder.write(kFirst, safetensors_file({{"a", DType::f32, {2}, 1}}));
    folder.write(kSecond, safetensors_file({{"b", DType::f32, {3}, 2}, {"c", DType::f32, {1}, 3}}));
    folder.write(kIndex, index_of({{"a", kFirst}, {"b", kSecond}, {"c", kSecond}}));
  }
  Result<Checkpoint> open() const { return Checkpoint::open(folder.path()); }

  const TempFolder folder;
};

TEST_F(Shards, AreOneCheckpoint) {
  const Checkpoint checkpoint = open().value();
  ASSERT_EQ(checkpoint.files().size(), 2u);
  ASSERT_EQ(checkpoint.tensors().size(), 3u);
  EXPECT_EQ(checkpoint.tensors()[2].file, 1u);
  EXPECT_EQ(static_cast<int>(*checkpoint.find("c")->data), 3);
}

TEST_F(Shards, MissingOneIsNamed) {
  std::filesystem::remove(folder.path() + "/" + kSecond);
  expect_error(open(), "not_found", {kSecond, "is listed in", kIndex});
}

TEST_F(Shards, ListedTensorThatIsAbsentIsNamed) {
  folder.write(kIndex, index_of({{"a", kFirst}, {"b", kSecond}, {"c", kSecond}, {"d", kFirst}}));
  expect_error(open(), "corrupt", {"tensor d", kFirst, "does not have it"});
}

TEST_F(Shards, TensorInTheWrongShardIsNamed) {
  folder.write(kIndex, index_of({{"a", kFirst}, {"b", kSecond}, {"c", kFirst}}));
  expect_error(open(), "corrupt", {"tensor c", kFirst, kSecond});
}

TEST_F(Shards, TensorInTwoShardsIsNamed) {
  folder.write(kFirst, safetensors_file({{"a", DType::f32, {2}}, {"b", DType::f32, {3}}}));
  expect_error(open(), "corrupt", {"tensor b", kSecond, "is also in", kFirst});
}

TEST_F(Shards, TensorThatIsNotListedIsNamed) {
  folder.write(kIndex, index_of({{"a", kFirst}, {"b", kSecond}}));
  expect_error(open(), "corrupt", {"tensor c", kSecond, "is not listed"});
}

TEST_F(Shards, IndexThatLeavesTheDirectoryIsRefused) {
  for (const char* file : {"../secret.safetensors", "/etc/passwd", "..", ""}) {
    folder.write(kIndex, index_of({{"a", file}}));
    expect_error(open(), "corrupt", {"tensor a", "plain name"});
  }
}

TEST_F(Shards, BrokenIndexIsNamed) {
  for (const char* text :
       {"{", "[]", "{}", "{\"weight_map\":[]}", "{\"weight_map\":{}}", "{\"weight_map\":{\"a\":1}}",
        "{\"weight_map\":{\"a\":\"x\",\"a\":\"x\"}}"}) {
    folder.write(kIndex, text);
    expect_error(open(), "corrupt", {kIndex});
  }
}

std::string part_name(int number, int count = 3) {
  return "m-0000" + std::to_string(number) + "-of-0000" + std::to_string(count) + ".gguf";
}

GgufBuilder part(uint16_t number, uint16_t count = 3, int32_t tensors = 3) {
  GgufBuilder gguf;
  gguf.value("split.no", kU16, raw(number)).value("split.count", kU16, raw(count));
  gguf.value("split.tensors.count", kI32, raw(tensors));
  return gguf;
}

class SplitGguf : public testing::Test {
 protected:
  void SetUp() override {
    first = folder.write(part_name(1), part(0).text("general.name", "x").build());
    folder.write(part_name(2), part(1).tensor({"a", DType::f32, {2}, 4}).build());
    folder.write(
        part_name(3),
        part(2).tensor({"c", DType::f32, {2}, 5}).tensor({"b", DType::q8_0, {1, 32}, 6}).build());
  }

  const TempFolder folder;
  std::string first;
};

TEST_F(SplitGguf, IsOneCheckpoint) {
  const Checkpoint checkpoint = Checkpoint::open(first).value();
  EXPECT_EQ(checkpoint.container(), Container::gguf);
  EXPECT_EQ(checkpoint.files().size(), 3u);
  ASSERT_EQ(checkpoint.tensors().size(), 3u);
  EXPECT_EQ(checkpoint.tensors()[1].name, "b");
  EXPECT_EQ(checkpoint.tensors()[1].file, 2u);
  EXPECT_EQ(static_cast<int>(*checkpoint.find("b")->data), 6);
  EXPECT_TRUE(checkpoint.metadata().contains("general.name"));
}

TEST_F(SplitGguf, OpensByTheFirstPartOnly) {
  expect_error(Checkpoint::open(folder.path() + "/" + part_name(2)), "invalid",
               {"part 2 of 3", "name the first", part_name(1)});
}

TEST_F(SplitGguf, MissingPartIsNamed) {
  std::filesystem::remove(folder.path() + "/" + part_name(3));
  expect_error(Checkpoint::open(first), "not_found", {part_name(3), "part 3 of 3"});
}

TEST_F(SplitGguf, WrongNameIsNamed) {
  const std::string renamed = folder.write("model.gguf", part(0).build());
  expect_error(Checkpoint::open(renamed), "corrupt", {"part 1 of 3", "-00001-of-00003.gguf"});
}

TEST_F(SplitGguf, PartsThatDisagreeAreNamed) {
  folder.write(part_name(2), part(2).build());
  expect_error(Checkpoint::open(first), "corrupt", {part_name(2), "part 3 of 3", "part 2 of 3"});
  folder.write(part_name(2), part(5).build());
  expect_error(Checkpoint::open(first), "corrupt", {"split.no is 5", "split.count 3"});
}

TEST_F(SplitGguf, WrongTotalIsNamed) {
  folder.write(part_name(1), part(0, 3, 4).build());
  expect_error(Checkpoint::open(first), "corrupt", {"split.tensors.count is 4", "have 3"});
}

TEST_F(SplitGguf, TensorInTwoPartsIsNamed) {
  folder.write(part_name(3),
               part(2).tensor({"a", DType::f32, {2}}).tensor({"b", DType::f32, {2}}).build());
  expect_error(Checkpoint::open(first), "corrupt",
               {"tensor a", "is also in", part_name(2), part_name(3)});
}

}  // namespace
}  // namespace deepinfer::weights
