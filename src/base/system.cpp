#include "base/system.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/file.h"

namespace deepinfer {
namespace {

std::string proc(const char* path) {
  Result<std::string> text = read_file(path, size_t{16} << 20);
  return text.ok() ? std::move(text).value() : std::string();
}

// The numbers of a line, separated by blanks; stops at the first other thing.
std::vector<uint64_t> numbers(std::string_view line) {
  std::vector<uint64_t> out;
  while (true) {
    while (!line.empty() && (line[0] == ' ' || line[0] == '\t')) line.remove_prefix(1);
    uint64_t number = 0;
    const auto [end, code] = std::from_chars(line.data(), line.data() + line.size(), number);
    if (code != std::errc()) return out;
    out.push_back(number);
    line.remove_prefix(static_cast<size_t>(end - line.data()));
  }
}

// The rest of the first line that starts with `prefix`; empty when there is none.
std::string_view line_after(std::string_view text, std::string_view prefix) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (line.substr(0, prefix.size()) == prefix) return line.substr(prefix.size());
    if (end == text.npos) break;
    text.remove_prefix(end + 1);
  }
  return {};
}

}  // namespace

uint64_t proc_kilobytes(std::string_view text, std::string_view field) {
  const std::vector<uint64_t> found = numbers(line_after(text, std::string(field) + ":"));
  return found.empty() ? 0 : found[0] * 1024;
}

MachineTimes parse_proc_stat(std::string_view text) {
  // user nice system idle iowait irq softirq steal; guest times are inside user and nice.
  const std::vector<uint64_t> times = numbers(line_after(text, "cpu "));
  if (times.size() < 8) return {};
  MachineTimes out;
  out.busy = times[0] + times[1] + times[2] + times[5] + times[6];
  out.steal = times[7];
  out.total = out.busy + out.steal + times[3] + times[4];
  return out;
}

uint64_t parse_process_ticks(std::string_view text) {
  const size_t name_end = text.rfind(')');
  if (name_end == text.npos || name_end + 4 > text.size()) return 0;
  // After the name and the state letter: fields 4 (ppid) and up; utime and stime are 14 and 15.
  std::string_view rest = text.substr(name_end + 4);
  uint64_t ticks = 0;
  for (size_t field = 4; field <= 15; ++field) {
    while (!rest.empty() && rest[0] == ' ') rest.remove_prefix(1);
    const size_t end = rest.find(' ');
    if (rest.empty()) return 0;
    if (field >= 14) {
      const std::vector<uint64_t> value = numbers(rest.substr(0, end));
      ticks += value.empty() ? 0 : value[0];
    }
    rest.remove_prefix(end == rest.npos ? rest.size() : end);
  }
  return ticks;
}

std::string parse_cpu_model(std::string_view text) {
  const std::string_view rest = line_after(text, "model name");
  const size_t begin = rest.find_first_not_of(" \t:");
  return begin == rest.npos ? "unknown" : std::string(rest.substr(begin));
}

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
