#include "weights/disk/disk_reader.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "tensor/tensor.h"

namespace deepinfer::weights {
namespace {

namespace fs = std::filesystem;

// A folder that goes away with the test.
class DiskReaderTest : public ::testing::TestWithParam<DiskReader::Engine> {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string("deepinfer_disk_") + info->name();
    for (char& c : name) c = c == '/' ? '_' : c;
    folder_ = fs::temp_directory_path() / name;
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string content(size_t bytes, uint32_t seed) {
    std::string text(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) {
      text[i] = static_cast<char>((i * 2'654'435'761u + seed * 40'503u) >> 13);
    }
    return text;
  }
  std::string file(const std::string& name, const std::string& text) {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    return path;
  }
  std::unique_ptr<DiskReader> open(const std::vector<std::string>& paths) {
    Result<std::unique_ptr<DiskReader>> reader = DiskReader::open(
        paths, {.engine = GetParam(), .direct = true, .queue_depth = 3, .piece_bytes = 65536});
    if (!reader.ok()) {
      ADD_FAILURE() << reader.error().text();
      return nullptr;
    }
    return std::move(reader).value();
  }

  fs::path folder_;
};

// Where the kernel refuses io_uring, the automatic engine runs these through pread twice.
INSTANTIATE_TEST_SUITE_P(Engines, DiskReaderTest,
                         ::testing::Values(DiskReader::Engine::automatic,
                                           DiskReader::Engine::pread));

TEST_P(DiskReaderTest, EveryRangeArrivesWhateverItsAlignment) {
  const std::string a = content(1'000'003, 1), b = content(300'000, 2);
  const auto reader = open({file("a", a), file("b", b)});
  ASSERT_TRUE(reader);
  struct Range {
    uint32_t file;
    size_t offset, bytes;
  };
  const Range wanted[] = {
      {0, 0, 1},        {0, 4095, 2},       {0, 4096, 131072},     {0, 777, 400'000},
      {1, 0, 300'000},  {0, 999'000, 1003}, {0, 900'000, 100'003}, {1, 299'999, 1},
      {0, 65536, 65536}};
  std::vector<Buffer> targets;
  std::vector<DiskRange> ranges;
  for (const Range& range : wanted) {
    targets.emplace_back(range.bytes + 64);
    ranges.push_back({range.file, range.offset, range.bytes, targets.back().data() + 5});
  }
  const Result<void> result = reader->read(ranges);
  ASSERT_TRUE(result.ok()) << result.error().text();
  for (size_t i = 0; i < targets.size(); ++i) {
    const std::string& source = wanted[i].file == 0 ? a : b;
    EXPECT_EQ(std::string(reinterpret_cast<char*>(targets[i].data()) + 5, wanted[i].bytes),
              source.substr(wanted[i].offset, wanted[i].bytes))
        << "range " << i;
    EXPECT_EQ(targets[i].data()[4], std::byte{0});
    EXPECT_EQ(targets[i].data()[5 + wanted[i].bytes], std::byte{0});
  }
}

TEST_P(DiskReaderTest, AShortFileIsNamedWithItsOffsetAndRecoversWhenItIsBack) {
  const std::string text = content(500'000, 3);
  const std::string path = file("weights", text);
  const auto reader = open({path});
  ASSERT_TRUE(reader);
  Buffer target(200'000);
  const DiskRange range[] = {{0, 250'000, 200'000, target.data()}};
  fs::resize_file(path, 300'000);
  const Result<void> short_read = reader->read(range);
  ASSERT_FALSE(short_read.ok());
  EXPECT_EQ(short_read.error().kind, ErrorKind::io);
  EXPECT_NE(short_read.error().text().find(path), std::string::npos);
  EXPECT_NE(short_read.error().text().find("ends at byte 300000"), std::string::npos)
      << short_read.error().text();

  // Another file in its place is found by its path.
  fs::remove(path);
  const Result<void> gone = reader->read(range);
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.error().kind, ErrorKind::not_found);
  file("weights", text);
  const Result<void> back = reader->read(range);
  ASSERT_TRUE(back.ok()) << back.error().text();
  EXPECT_EQ(std::string(reinterpret_cast<char*>(target.data()), 200'000),
            text.substr(250'000, 200'000));
}

TEST_P(DiskReaderTest, AMissingFileIsRefusedAtOpen) {
  const Result<std::unique_ptr<DiskReader>> reader =
      DiskReader::open({(folder_ / "absent").string()}, {.engine = GetParam()});
  ASSERT_FALSE(reader.ok());
  EXPECT_EQ(reader.error().kind, ErrorKind::not_found);
}

TEST_P(DiskReaderTest, NothingWantedIsNothingRead) {
  const auto reader = open({file("a", "x")});
  ASSERT_TRUE(reader);
  EXPECT_TRUE(reader->read({}).ok());
}

}  // namespace
}  // namespace deepinfer::weights
