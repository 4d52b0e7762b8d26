#include "kernels/limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

namespace deepinfer::kernels {
namespace {

TEST(Limits, LastLevelCacheIsTheLargestDataLevel) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "limits_test";
  const std::filesystem::path caches = root / "sys/devices/system/cpu/cpu0/cache";
  const std::string entries[][3] = {{"1", "Data", "48K"},
                                    {"1", "Instruction", "32K"},
                                    {"2", "Unified", "2048K"},
                                    {"3", "Unified", "260M"}};
  for (size_t i = 0; i < 4; ++i) {
    const std::filesystem::path folder = caches / ("index" + std::to_string(i));
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "level") << entries[i][0] << "\n";
    std::ofstream(folder / "type") << entries[i][1] << "\n";
    std::ofstream(folder / "size") << entries[i][2] << "\n";
  }
  EXPECT_EQ(last_level_cache_bytes(root.string()), size_t{260} << 20);
  std::filesystem::remove_all(root);
  EXPECT_EQ(last_level_cache_bytes(root.string()), 0u);
}

TEST(Limits, ProbeReadsWhatItHolds) {
  const auto pool = ThreadPool::create({.threads = 3}).value();
  const auto probe = BandwidthProbe::create(*pool, (size_t{4} << 20) + 12345).value();
  EXPECT_GT(probe.bytes(), size_t{3} << 20);
  EXPECT_LE(probe.bytes(), (size_t{4} << 20) + 12345);
  EXPECT_GT(measure_read_bandwidth(*pool, Isa::ref, probe), 0.0);
  EXPECT_GT(probe.measure_one_thread(Isa::ref), 0.0);
  if (!cpu_features().avx2) return;
  EXPECT_GT(measure_read_bandwidth(*pool, Isa::avx2, probe), 0.0);
  EXPECT_GT(probe.measure_one_thread(Isa::emulated512), 0.0);
}

TEST(Limits, RefusesAProbeLargerThanMemory) {
  const auto pool = ThreadPool::create({.threads = 1}).value();
  EXPECT_FALSE(BandwidthProbe::create(*pool, size_t{1} << 60).ok());
}

}  // namespace
}  // namespace deepinfer::kernels
