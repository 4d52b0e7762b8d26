#pragma once

// Parsers of the text that /proc gives, apart from the reading so that they can be tested.
// Threads: any; pure functions.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/system.h"

namespace deepinfer {

// "VmRSS:     1234 kB" in bytes; 0 when the field is not there.
uint64_t proc_kilobytes(std::string_view text, std::string_view field);

// The times of the "cpu " line of /proc/stat, in ticks; zero when malformed.
MachineTimes parse_proc_stat(std::string_view text);

// utime + stime of /proc/<pid>/stat, in ticks. The name in parentheses may hold anything.
uint64_t parse_process_ticks(std::string_view text);

// The first "model name" of /proc/cpuinfo, "unknown" without one.
std::string parse_cpu_model(std::string_view text);

}  // namespace deepinfer
