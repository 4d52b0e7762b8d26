#pragma once

// The machine: its CPU, and how busy others kept it. Benchmarks state both with every figure.
//
//   LoadSampler load;
//   ... work ...
//   MachineLoad seen = load.sample();   // since the sampler was made
//
// Threads: any; one sampler, one thread.

#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

// "Intel(R) Xeon(R) Processor", from /proc/cpuinfo.
std::string cpu_model();

struct MachineTimes {
  uint64_t busy = 0;   // ticks of all CPUs: user, nice, system, irq, softirq
  uint64_t steal = 0;  // taken by the hypervisor
  uint64_t total = 0;  // busy, steal, idle, iowait
};

// Shares of the time of all CPUs, 0..1.
struct MachineLoad {
  double own = 0.0;          // this process
  double others = 0.0;       // other processes and the kernel
  double stolen = 0.0;       // the hypervisor gave it to another machine
  std::string text() const;  // "own 98 %, others 1 %, stolen 0 %"
};

// own_ticks: what this process used between the two.
MachineLoad load_between(const MachineTimes& before, const MachineTimes& after, uint64_t own_ticks);

class LoadSampler {
 public:
  LoadSampler();
  // Since construction. Ticks are 10 ms: meaningful from about a tenth of a second on.
  MachineLoad sample() const;

 private:
  MachineTimes machine_;
  uint64_t process_ticks_;
};

// What the functions above and base/memory.h parse, apart from the reading so that tests can lay
// out the text. Pure functions.

// "VmRSS:     1234 kB" in bytes; 0 when the field is not there.
uint64_t proc_kilobytes(std::string_view text, std::string_view field);

// The times of the "cpu " line of /proc/stat, in ticks; zero when malformed.
MachineTimes parse_proc_stat(std::string_view text);

// utime + stime of /proc/<pid>/stat, in ticks. The name in parentheses may hold anything.
uint64_t parse_process_ticks(std::string_view text);

// The first "model name" of /proc/cpuinfo, "unknown" without one.
std::string parse_cpu_model(std::string_view text);

}  // namespace deepinfer
