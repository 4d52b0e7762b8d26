#include "base/memory.h"

#include <algorithm>
#include <optional>

#include "base/file.h"
#include "base/process_limits.h"
#include "base/system.h"

namespace deepinfer {
namespace {

std::string proc(const char* path) {
  Result<std::string> text = read_file(path, size_t{1} << 20);
  return text.ok() ? std::move(text).value() : std::string();
}

}  // namespace

MemoryUse memory_use() {
  const std::string status = proc("/proc/self/status");
  return {proc_kilobytes(status, "VmSize"), proc_kilobytes(status, "VmPeak"),
          proc_kilobytes(status, "VmRSS"), proc_kilobytes(status, "VmHWM"),
          proc_kilobytes(status, "RssAnon")};
}

uint64_t total_memory_bytes() { return proc_kilobytes(proc("/proc/meminfo"), "MemTotal"); }

uint64_t available_memory_bytes() { return proc_kilobytes(proc("/proc/meminfo"), "MemAvailable"); }

uint64_t usable_memory_bytes() {
  const uint64_t total = total_memory_bytes();
  const std::optional<uint64_t> limit = cgroup_memory_limit();
  return limit ? std::min(*limit, total) : total;
}

}  // namespace deepinfer
