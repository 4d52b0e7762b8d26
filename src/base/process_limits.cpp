#include "base/process_limits.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "base/file.h"
#include "base/thread_pool.h"

namespace deepinfer {
namespace {

constexpr size_t kProcLimit = size_t{4} << 20;

std::string text_or_empty(const std::string& path) {
  Result<std::string> text = read_file(path, kProcLimit);
  return text.ok() ? std::move(text).value() : std::string();
}

struct Mount {
  std::string root;   // the part of the hierarchy that is mounted
  std::string point;  // where
};

// mountinfo(5): id parent major:minor root point options [optional...] - type source super-options
std::optional<Mount> find_mount(const std::string& mountinfo, const std::string& type,
                                const std::string& super_option) {
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream left(line.substr(0, dash)), right(line.substr(dash + 3));
    std::string id, parent, device, source, found_type, options;
    Mount mount;
    left >> id >> parent >> device >> mount.root >> mount.point;
    right >> found_type >> source >> options;
    if (found_type != type) continue;
    if (super_option.empty() ||
        ("," + options + ",").find("," + super_option + ",") != std::string::npos) {
      return mount;
    }
  }
  return std::nullopt;
}

// proc/self/cgroup: "0::/path" for v2, "4:cpu,cpuacct:/path" for v1.
std::optional<std::string> find_group(const std::string& cgroups, const std::string& controller) {
  std::istringstream lines(cgroups);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    const bool match = controller.empty()
                           ? names.empty() && line.compare(0, first, "0") == 0
                           : ("," + names + ",").find("," + controller + ",") != std::string::npos;
    if (match) return line.substr(second + 1);
  }
  return std::nullopt;
}

std::optional<double> quota_v2(const std::string& folder) {
  std::istringstream text(text_or_empty(folder + "/cpu.max"));
  std::string quota;
  double period = 0;
  if (!(text >> quota >> period) || quota == "max" || period <= 0) return std::nullopt;
  return std::strtod(quota.c_str(), nullptr) / period;
}

std::optional<double> quota_v1(const std::string& folder) {
  const double quota = std::strtod(text_or_empty(folder + "/cpu.cfs_quota_us").c_str(), nullptr);
  const double period = std::strtod(text_or_empty(folder + "/cpu.cfs_period_us").c_str(), nullptr);
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> bytes_in(const std::string& path) {
  const std::string text = text_or_empty(path);
  if (text.empty() || text.starts_with("max")) return std::nullopt;
  return std::strtod(text.c_str(), nullptr);
}

std::optional<double> least(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

std::optional<double> memory_v2(const std::string& folder) {
  return least(bytes_in(folder + "/memory.max"), bytes_in(folder + "/memory.high"));
}

// Without a limit the file holds the largest page-aligned number.
std::optional<double> memory_v1(const std::string& folder) {
  const std::optional<double> bytes = bytes_in(folder + "/memory.limit_in_bytes");
  return bytes && *bytes < 0x1p62 ? bytes : std::nullopt;
}

// The least value from the process's group up to the mount point. In a container the group's path
// may start with the mounted root, or lie outside of what is mounted: then only the mount counts.
std::optional<double> least_of_groups(const std::string& root, const Mount& mount,
                                      std::string group,
                                      std::optional<double> (*read)(const std::string&)) {
  if (mount.root != "/" && group.compare(0, mount.root.size(), mount.root) == 0) {
    group = group.substr(mount.root.size());
  }
  if (group.find("..") != std::string::npos) group.clear();
  std::optional<double> found;
  while (true) {
    while (!group.empty() && group.back() == '/') group.pop_back();
    found = least(found, read(root + mount.point + group));
    if (group.empty()) return found;
    const size_t slash = group.rfind('/');
    group.resize(slash == std::string::npos ? 0 : slash);
  }
}

// Of both versions of cgroups, whichever are mounted.
std::optional<double> least_of_controller(const std::string& root, const std::string& controller,
                                          std::optional<double> (*read_v2)(const std::string&),
                                          std::optional<double> (*read_v1)(const std::string&)) {
  const std::string cgroups = text_or_empty(root + "/proc/self/cgroup");
  const std::string mounts = text_or_empty(root + "/proc/self/mountinfo");
  std::optional<double> found;
  if (std::optional<Mount> mount = find_mount(mounts, "cgroup2", ""); mount) {
    if (std::optional<std::string> group = find_group(cgroups, ""); group) {
      found = least(found, least_of_groups(root, *mount, *group, read_v2));
    }
  }
  if (std::optional<Mount> mount = find_mount(mounts, "cgroup", controller); mount) {
    if (std::optional<std::string> group = find_group(cgroups, controller); group) {
      found = least(found, least_of_groups(root, *mount, *group, read_v1));
    }
  }
  return found;
}

}  // namespace

size_t affinity_cpu_count() {
  // The kernel refuses masks that are smaller than its own with EINVAL.
  for (size_t cpus = 1024; cpus <= (size_t{1} << 20); cpus *= 4) {
    std::vector<unsigned long> mask(cpus / (8 * sizeof(unsigned long)));
    const size_t bytes = mask.size() * sizeof(unsigned long);
    auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
    if (::sched_getaffinity(0, bytes, set) == 0) {
      return static_cast<size_t>(std::max(1, CPU_COUNT_S(bytes, set)));
    }
  }
  return 1;
}

std::optional<double> cgroup_cpu_quota(const std::string& root) {
  return least_of_controller(root, "cpu", quota_v2, quota_v1);
}

std::optional<uint64_t> cgroup_memory_limit(const std::string& root) {
  const std::optional<double> bytes = least_of_controller(root, "memory", memory_v2, memory_v1);
  if (!bytes || *bytes < 0) return std::nullopt;
  return static_cast<uint64_t>(*bytes);
}

size_t cpu_count_within(size_t affinity, std::optional<double> quota) {
  if (!quota || *quota >= static_cast<double>(affinity)) return std::max<size_t>(affinity, 1);
  return std::max<size_t>(1, static_cast<size_t>(std::ceil(*quota)));
}

size_t usable_cpu_count() { return cpu_count_within(affinity_cpu_count(), cgroup_cpu_quota()); }

}  // namespace deepinfer
