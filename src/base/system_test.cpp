#include "base/system.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/memory.h"

namespace deepinfer {
namespace {

TEST(Clock, TheManualClockMovesOnlyWhenTold) {
  ManualClock clock(10, 1000);
  EXPECT_EQ(clock.now_ns(), 10);
  clock.advance_ns(5);
  EXPECT_EQ(clock.now_ns(), 15);
  EXPECT_EQ(clock.wall_ns(), 1005);
}

TEST(Clock, TheSystemClockNeverGoesBack) {
  const int64_t first = system_clock().now_ns();
  EXPECT_GE(system_clock().now_ns(), first);
  EXPECT_GT(system_clock().wall_ns(), int64_t{1'600'000'000} * 1'000'000'000);
}

TEST(ProcText, ReadsTheMachinesTimes) {
  const MachineTimes times =
      parse_proc_stat("cpu  100 5 20 1000 50 3 2 7 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\nintr 5\n");
  EXPECT_EQ(times.busy, 130u);
  EXPECT_EQ(times.steal, 7u);
  EXPECT_EQ(times.total, 1187u);
  EXPECT_EQ(parse_proc_stat("cpu  1 2 3\n").total, 0u);
  EXPECT_EQ(parse_proc_stat("").total, 0u);
}

TEST(ProcText, ReadsTheProcessTicksBehindAnyName) {
  EXPECT_EQ(parse_process_ticks("7 (a) b (c 1 2) S 1 2 3 4 5 6 7 8 9 10 111 22 33 44"), 133u);
  EXPECT_EQ(parse_process_ticks("7 (a) S 1 2"), 0u);
  EXPECT_EQ(parse_process_ticks(""), 0u);
  EXPECT_EQ(parse_process_ticks("7 (a)"), 0u);
}

TEST(ProcText, ReadsFieldsAndTheModel) {
  EXPECT_EQ(proc_kilobytes("VmPeak:\t 12 kB\nVmRSS:\t  34 kB\n", "VmRSS"), 34u * 1024);
  EXPECT_EQ(proc_kilobytes("VmPeak:\t 12 kB\n", "VmRSS"), 0u);
  EXPECT_EQ(proc_kilobytes("VmRSS: none\n", "VmRSS"), 0u);
  EXPECT_EQ(parse_cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"),
            "Some CPU @ 2 GHz");
  EXPECT_EQ(parse_cpu_model("processor: 0\n"), "unknown");
}

TEST(MachineLoad, SplitsTheTime) {
  const MachineLoad load = load_between({100, 0, 1000}, {160, 20, 1200}, 40);
  EXPECT_DOUBLE_EQ(load.own, 0.2);
  EXPECT_DOUBLE_EQ(load.others, 0.1);
  EXPECT_DOUBLE_EQ(load.stolen, 0.1);
  EXPECT_EQ(load.text(), "own 20 %, others 10 %, stolen 10 %");
  EXPECT_EQ(load_between({5, 0, 10}, {5, 0, 10}, 3).own, 0.0);
  EXPECT_DOUBLE_EQ(load_between({0, 0, 0}, {10, 0, 20}, 99).others, 0.0);
}

TEST(LoadSampler, SeesOwnWork) {
  const LoadSampler sampler;
  const int64_t end = system_clock().now_ns() + 300'000'000;
  while (system_clock().now_ns() < end) {
  }
  const MachineLoad load = sampler.sample();
  EXPECT_GT(load.own, 0.0);
  EXPECT_LE(load.own + load.others + load.stolen, 1.0 + 1e-9);
  EXPECT_NE(cpu_model(), "");
}

TEST(Memory, GrowsWithUse) {
  const MemoryUse before = memory_use();
  EXPECT_GT(before.resident_bytes, 0u);
  EXPECT_GE(before.peak_resident_bytes, before.resident_bytes);
  EXPECT_GE(before.peak_address_space_bytes, before.address_space_bytes);
  const std::vector<std::byte> block(size_t{64} << 20, std::byte{1});
  EXPECT_GE(memory_use().address_space_bytes, before.address_space_bytes + (size_t{60} << 20));
  EXPECT_EQ(block[12345], std::byte{1});
  EXPECT_GT(total_memory_bytes(), 0u);
  EXPECT_LE(available_memory_bytes(), total_memory_bytes());
}

}  // namespace
}  // namespace deepinfer
