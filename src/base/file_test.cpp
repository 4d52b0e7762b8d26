#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace deepinfer {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("deepinfer_file_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string put(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  size_t entries() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

std::string text_of(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

TEST_F(FileTest, MapsAWholeFile) {
  const std::string name = put("a", std::string(10'000, 'x') + "end");
  MappedFile file = MappedFile::open(name).value();
  EXPECT_EQ(file.bytes().size(), 10'003u);
  EXPECT_EQ(text_of(file.bytes().last(3)), "end");
  EXPECT_EQ(file.path(), name);
  file.advise_sequential(0, file.bytes().size());
  file.advise_random(5'000, 1);
  file.advise_done(1, 9'000);
  file.advise_done(20'000, 5);
  EXPECT_EQ(text_of(file.bytes().last(3)), "end");
  const MappedFile moved = std::move(file);
  // NOLINTNEXTLINE(bugprone-use-after-move): what a move leaves behind is part of the contract
  EXPECT_EQ(file.bytes().size(), 0u);
  EXPECT_EQ(moved.bytes().size(), 10'003u);
}

TEST_F(FileTest, HolesOfAFileAreToldFromItsData) {
  const std::string name = put("sparse", std::string(5'000, 'x'));
  fs::resize_file(name, 10'000'000);
  uint64_t at = 100, data = 0, zeros = 0;
  for (const FilePart& part : file_parts(name, 100, 9'000'000).value()) {
    EXPECT_EQ(part.offset, at);
    at += part.bytes;
    (part.hole ? zeros : data) += part.bytes;
  }
  EXPECT_EQ(at, 9'000'100u);
  EXPECT_GE(data, 4'900u);
  // Where the file system has holes at all, this is one.
  struct stat seen{};
  ASSERT_EQ(::stat(name.c_str(), &seen), 0);
  if (seen.st_blocks * 512 < 5'000'000) EXPECT_GT(zeros, 5'000'000u);
  EXPECT_TRUE(file_parts(name, 0, 0).value().empty());
  EXPECT_EQ(file_parts(path("missing"), 0, 1).error().kind, ErrorKind::not_found);
}

TEST_F(FileTest, AnEmptyFileMapsToNothing) {
  EXPECT_TRUE(MappedFile::open(put("empty", "")).value().bytes().empty());
}

TEST_F(FileTest, MissingFilesAreNamed) {
  const std::string name = path("missing");
  for (const Error& error :
       {MappedFile::open(name).error(), DirectFile::open(name).error(), read_file(name).error()}) {
    EXPECT_EQ(error.kind, ErrorKind::not_found);
    EXPECT_EQ(error.text(), name + ": cannot open: No such file or directory");
  }
}

TEST_F(FileTest, FoldersAndDevicesAreRefused) {
  EXPECT_EQ(MappedFile::open(folder_.string()).error().kind, ErrorKind::io);
  EXPECT_EQ(DirectFile::open(folder_.string()).error().kind, ErrorKind::io);
  EXPECT_NE(read_file(folder_.string()).error().text().find("Is a directory"), std::string::npos);
  EXPECT_NE(MappedFile::open("/dev/null").error().text().find("not a regular file"),
            std::string::npos);
}

TEST_F(FileTest, ReadsDirectlyToTheEnd) {
  std::string text(3 * DirectFile::kAlignment + 100, 'a');
  text[2 * DirectFile::kAlignment] = 'b';
  DirectFile file = DirectFile::open(put("direct", text)).value();
  EXPECT_EQ(file.size(), text.size());
  std::vector<std::byte> storage(3 * DirectFile::kAlignment);
  void* aligned = storage.data();
  size_t space = storage.size();
  ASSERT_NE(std::align(DirectFile::kAlignment, 2 * DirectFile::kAlignment, aligned, space),
            nullptr);
  const std::span target(static_cast<std::byte*>(aligned), 2 * DirectFile::kAlignment);
  EXPECT_EQ(file.read(0, target).value(), target.size());
  EXPECT_EQ(target[0], std::byte{'a'});
  EXPECT_EQ(file.read(2 * DirectFile::kAlignment, target).value(), DirectFile::kAlignment + 100);
  EXPECT_EQ(target[0], std::byte{'b'});
  EXPECT_EQ(file.read(4 * DirectFile::kAlignment, target).value(), 0u);
  const DirectFile moved = std::move(file);
  EXPECT_EQ(moved.read(0, target).value(), target.size());
}

TEST_F(FileTest, AFileThatShrinksIsReported) {
  const std::string name = put("shrinks", std::string(4 * DirectFile::kAlignment, 'a'));
  const DirectFile file = DirectFile::open(name).value();
  fs::resize_file(name, DirectFile::kAlignment);
  void* target = std::aligned_alloc(DirectFile::kAlignment, DirectFile::kAlignment);
  const auto got = file.read(2 * DirectFile::kAlignment,
                             {static_cast<std::byte*>(target), DirectFile::kAlignment});
  std::free(target);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().kind, ErrorKind::corrupt);
}

TEST_F(FileTest, ReadsFilesOfProcWhoseSizeIsZero) {
  EXPECT_GT(read_file("/proc/self/maps").value().size(), 100u);
}

TEST_F(FileTest, TheLimitHolds) {
  const std::string name = put("large", std::string(1000, 'x'));
  EXPECT_EQ(read_file(name, 1000).value().size(), 1000u);
  const Error error = read_file(name, 999).error();
  EXPECT_EQ(error.kind, ErrorKind::exhausted);
  EXPECT_NE(error.text().find("the limit is 999"), std::string::npos);
  EXPECT_EQ(read_file("/dev/zero", 100'000).error().kind, ErrorKind::exhausted);
}

TEST_F(FileTest, WritesAtomically) {
  const std::string name = put("target", "old");
  ASSERT_TRUE(write_file_atomic(name, "new text").ok());
  EXPECT_EQ(read_file(name).value(), "new text");
  ASSERT_TRUE(write_file_atomic(name, std::string_view()).ok());
  EXPECT_EQ(read_file(name).value(), "");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(FileTest, AFailedWriteKeepsTheOldFileAndLeavesNoLitter) {
  // The rename fails: the target is a folder with something in it.
  fs::create_directory(folder_ / "taken");
  put("taken/inside", "kept");
  const Result<void> written = write_file_atomic(path("taken"), "new");
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().thing, path("taken"));
  EXPECT_NE(written.error().what.find("cannot rename"), std::string::npos);
  EXPECT_EQ(entries(), 1u);
  EXPECT_EQ(read_file(path("taken/inside")).value(), "kept");
}

TEST_F(FileTest, FullDisksAndForbiddenPlacesAreNamed) {
  EXPECT_EQ(write_file_atomic(path("no/such/folder/x"), "a").error().kind, ErrorKind::not_found);
  EXPECT_EQ(write_file_atomic("/proc/deepinfer_test", "a").error().thing, "/proc/deepinfer_test");
  EXPECT_FALSE(write_file_atomic("/dev/full/x", "a").ok());
}

TEST_F(FileTest, AWriteThatDoesNotFitLeavesNothing) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string name = put("grows", "old");
  const auto child = [&] {
    // As on a full disk, write() stops in the middle; with the signal ignored it returns EFBIG.
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    const Result<void> written = write_file_atomic(name, std::string(100'000, 'x'));
    const bool right = !written.ok() && written.error().kind == ErrorKind::io &&
                       written.error().what.find("cannot write") != std::string::npos;
    std::_Exit(right ? 0 : 1);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
  EXPECT_EQ(read_file(name).value(), "old");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(FileTest, ConcurrentWritersLeaveOneWholeFile) {
  const std::string name = path("shared");
  std::vector<std::thread> writers;
  for (char letter : {'a', 'b', 'c'}) {
    writers.emplace_back([&, letter] {
      for (int i = 0; i < 20; ++i) {
        ASSERT_TRUE(write_file_atomic(name, std::string(5000, letter)).ok());
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string text = read_file(name).value();
  EXPECT_EQ(text, std::string(5000, text[0]));
  EXPECT_EQ(entries(), 1u);
}

}  // namespace
}  // namespace deepinfer
