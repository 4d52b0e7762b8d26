#include "base/process_limits.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace deepinfer {
namespace {

namespace fs = std::filesystem;

// A root folder with its own /proc/self and cgroup trees.
class ProcessLimitsTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("deepinfer_limits_" + std::to_string(::getpid()));
  }
  void TearDown() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    const fs::path whole = root_.string() + path;
    fs::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  std::optional<double> quota() const { return cgroup_cpu_quota(root_.string()); }

  fs::path root_;
};

constexpr const char* kV2Mount =
    "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST_F(ProcessLimitsTest, NothingMeansNoQuota) {
  EXPECT_EQ(quota(), std::nullopt);
  put("/proc/self/cgroup", "garbage\n::\n");
  put("/proc/self/mountinfo", "garbage - cgroup2\n - \n");
  EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(ProcessLimitsTest, V2TakesTheLeastOfGroupAndParents) {
  put("/proc/self/mountinfo", kV2Mount);
  put("/proc/self/cgroup", "0::/a/b/c\n");
  put("/sys/fs/cgroup/a/b/c/cpu.max", "400000 100000\n");
  EXPECT_EQ(quota(), 4.0);
  put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 4.0);
  put("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(), 1.5);
}

TEST_F(ProcessLimitsTest, V2InsideAContainer) {
  // The namespace shows the own group as the root of the mount.
  put("/proc/self/mountinfo",
      "29 23 0:26 /docker/abc /sys/fs/cgroup ro shared:4 - cgroup2 cgroup2 rw\n");
  put("/proc/self/cgroup", "0::/docker/abc\n");
  put("/sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(quota(), 3.0);
  put("/proc/self/cgroup", "0::/../../elsewhere\n");
  EXPECT_EQ(quota(), 3.0);
}

TEST_F(ProcessLimitsTest, V1ReadsQuotaAndPeriod) {
  put("/proc/self/mountinfo",
      "33 25 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
      "34 25 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
  put("/proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/job/7\n");
  put("/sys/fs/cgroup/cpu/job/7/cpu.cfs_quota_us", "-1\n");
  put("/sys/fs/cgroup/cpu/job/7/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  put("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000\n");
  put("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(ProcessLimitsTest, QuotasRoundUpAndNeverReachZero) {
  EXPECT_EQ(cpu_count_within(8, std::nullopt), 8u);
  EXPECT_EQ(cpu_count_within(8, 2.1), 3u);
  EXPECT_EQ(cpu_count_within(8, 0.1), 1u);
  EXPECT_EQ(cpu_count_within(2, 16.0), 2u);
  EXPECT_EQ(cpu_count_within(0, std::nullopt), 1u);
  EXPECT_GE(affinity_cpu_count(), 1u);
}

TEST_F(ProcessLimitsTest, MemoryTakesTheLeastOfMaxAndHighOfGroupAndParents) {
  const auto limit = [&] { return cgroup_memory_limit(root_.string()); };
  EXPECT_EQ(limit(), std::nullopt);
  put("/proc/self/mountinfo", kV2Mount);
  put("/proc/self/cgroup", "0::/a/b\n");
  put("/sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(limit(), std::nullopt);
  put("/sys/fs/cgroup/a/b/memory.high", "8589934592\n");
  EXPECT_EQ(limit(), 8589934592u);
  put("/sys/fs/cgroup/a/memory.max", "4294967296\n");
  EXPECT_EQ(limit(), 4294967296u);
}

TEST_F(ProcessLimitsTest, MemoryOfV1HasANumberForNoLimit) {
  put("/proc/self/mountinfo", "30 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  put("/proc/self/cgroup", "4:memory:/job\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(cgroup_memory_limit(root_.string()), std::nullopt);
  put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
  EXPECT_EQ(cgroup_memory_limit(root_.string()), 1073741824u);
}

}  // namespace
}  // namespace deepinfer
