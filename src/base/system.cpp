#include "base/system.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/proc_text.h"

namespace deepinfer {
namespace {

std::string proc(const char* path) {
  Result<std::string> text = read_file(path, size_t{16} << 20);
  return text.ok() ? std::move(text).value() : std::string();
}

}  // namespace

std::string cpu_model() { return parse_cpu_model(proc("/proc/cpuinfo")); }

MachineLoad load_between(const MachineTimes& before, const MachineTimes& after,
                         uint64_t own_ticks) {
  MachineLoad load;
  if (after.total <= before.total) return load;
  const double total = static_cast<double>(after.total - before.total);
  const double busy = after.busy > before.busy ? static_cast<double>(after.busy - before.busy) : 0;
  const double own = std::min(static_cast<double>(own_ticks), busy);
  load.own = own / total;
  load.others = (busy - own) / total;
  load.stolen =
      after.steal > before.steal ? static_cast<double>(after.steal - before.steal) / total : 0.0;
  return load;
}

std::string MachineLoad::text() const {
  return fmt::format("own {:.0f} %, others {:.0f} %, stolen {:.0f} %", 100 * own, 100 * others,
                     100 * stolen);
}

LoadSampler::LoadSampler()
    : machine_(parse_proc_stat(proc("/proc/stat"))),
      process_ticks_(parse_process_ticks(proc("/proc/self/stat"))) {}

MachineLoad LoadSampler::sample() const {
  const MachineTimes machine = parse_proc_stat(proc("/proc/stat"));
  const uint64_t ticks = parse_process_ticks(proc("/proc/self/stat"));
  return load_between(machine_, machine, ticks > process_ticks_ ? ticks - process_ticks_ : 0);
}

}  // namespace deepinfer
