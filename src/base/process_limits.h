#pragma once

// How many CPUs and how much memory this process may use, read below a given root so that tests can
// lay out their own cgroup tree. usable_cpu_count() of base/thread_pool.h and usable_memory_bytes()
// of base/memory.h are the same for the real system.
//
// Threads: any.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace deepinfer {

// CPUs in the affinity mask of the calling thread; at least 1.
size_t affinity_cpu_count();

// The smallest quota, in CPUs (1.5 = 150 ms each 100 ms), of this process's cgroup and all its
// parents; nullopt without a quota. `root` is put before /proc/self/cgroup, /proc/self/mountinfo
// and every mount point. cgroup v2: cpu.max; v1: cpu.cfs_quota_us and cpu.cfs_period_us.
std::optional<double> cgroup_cpu_quota(const std::string& root = "");

// The smallest memory limit, in bytes, of this process's cgroup and all its parents; nullopt
// without one. v2: memory.max and memory.high (beyond which the kernel throttles); v1:
// memory.limit_in_bytes.
std::optional<uint64_t> cgroup_memory_limit(const std::string& root = "");

// min(affinity, quota rounded up), at least 1.
size_t cpu_count_within(size_t affinity, std::optional<double> quota);

}  // namespace deepinfer
