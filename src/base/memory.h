#pragma once

// What this process uses and what the machine has, read from /proc. Readings that the system does
// not give are 0. Threads: any.

#include <cstdint>

namespace deepinfer {

struct MemoryUse {
  uint64_t address_space_bytes = 0;       // VmSize: reserved, not necessarily used
  uint64_t peak_address_space_bytes = 0;  // VmPeak
  uint64_t resident_bytes = 0;            // VmRSS
  uint64_t peak_resident_bytes = 0;       // VmHWM
  uint64_t anonymous_bytes = 0;           // RssAnon: without pages of mapped files
};

MemoryUse memory_use();

// MemTotal and MemAvailable of the machine; a container may be limited further.
uint64_t total_memory_bytes();
uint64_t available_memory_bytes();

// What this process may use of the machine's memory: its total, or the least limit of the cgroup
// and its parents.
uint64_t usable_memory_bytes();

}  // namespace deepinfer
