#include "base/memory.h"

#include "base/file.h"
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
          proc_kilobytes(status, "VmRSS"), proc_kilobytes(status, "VmHWM")};
}

uint64_t total_memory_bytes() { return proc_kilobytes(proc("/proc/meminfo"), "MemTotal"); }

uint64_t available_memory_bytes() { return proc_kilobytes(proc("/proc/meminfo"), "MemAvailable"); }

}  // namespace deepinfer
