#include "server/device/cpu_info.h"

#include <sched.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace ridgeline::device {
namespace {

// Empty if there is no such file.
std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return std::string(absl::StripAsciiWhitespace(text.str()));
}

// Of the first line "name : value"; empty if there is none.
std::string ReadEntry(const std::string& path, absl::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::pair<absl::string_view, absl::string_view> entry = absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (absl::StripAsciiWhitespace(entry.first) == name) return std::string(absl::StripAsciiWhitespace(entry.second));
  }
  return "";
}

std::optional<std::int64_t> ParseInteger(absl::string_view text) {
  std::int64_t value;
  if (!absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

// "48K" or "24684092 kB".
std::int64_t ParseKibibytes(absl::string_view text) {
  const absl::string_view digits = text.substr(0, text.find_first_not_of("0123456789"));
  return ParseInteger(digits).value_or(0) << 10;
}

std::int64_t ReadCacheBytes(const std::string& root, absl::string_view level) {
  for (int index = 0;; ++index) {
    const std::string cache = absl::StrCat(root, "/sys/devices/system/cpu/cpu0/cache/index", index);
    const std::string cache_level = ReadFile(cache + "/level");
    if (cache_level.empty()) return 0;
    if (cache_level == level && ReadFile(cache + "/type") != "Instruction") return ParseKibibytes(ReadFile(cache + "/size"));
  }
}

// The files `name` of this process' control group and of those around it, whose limits hold as well. In a container the group's
// own path often isn't visible, the mount's root is.
std::vector<std::string> ReadGroupFiles(const std::string& root, absl::string_view controller, absl::string_view name) {
  std::vector<std::string> contents;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "hierarchy:controllers:path"; version 2 has no controllers and one hierarchy.
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<absl::string_view> controllers = absl::StrSplit(fields[1], ',');
    if (std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) continue;
    const std::string mount = absl::StrCat(root, "/sys/fs/cgroup", controller.empty() ? "" : "/", controller);
    std::string path = fields[2];
    contents.push_back(ReadFile(absl::StrCat(mount, path, "/", name)));
    for (auto slash = path.rfind('/'); slash != std::string::npos; slash = path.rfind('/')) {
      path.resize(slash);
      contents.push_back(ReadFile(absl::StrCat(mount, path, "/", name)));
    }
  }
  return contents;
}

std::int64_t ReadMemoryBytes(const std::string& root) {
  std::int64_t memory_bytes = ParseKibibytes(ReadEntry(root + "/proc/meminfo", "MemTotal"));
  std::vector<std::string> limits = ReadGroupFiles(root, "", "memory.max");  // "max" = none
  for (std::string& limit : ReadGroupFiles(root, "memory", "memory.limit_in_bytes")) limits.push_back(std::move(limit));
  for (const std::string& limit : limits) {
    if (const auto bytes = ParseInteger(limit)) memory_bytes = std::min(memory_bytes, *bytes);
  }
  return memory_bytes;
}

// Processor seconds a second; infinite if there is no quota.
double ReadCpuQuota(const std::string& root) {
  double quota = HUGE_VAL;
  const auto limit_to = [&quota](absl::string_view used_us, absl::string_view period_us) {
    const auto used = ParseInteger(used_us);  // version 2: "max" = no quota; version 1: -1
    const auto period = ParseInteger(period_us);
    if (used && *used > 0 && period && *period > 0) quota = std::min(quota, static_cast<double>(*used) / *period);
  };
  for (const std::string& line : ReadGroupFiles(root, "", "cpu.max")) {
    const std::pair<absl::string_view, absl::string_view> fields = absl::StrSplit(line, ' ');
    limit_to(fields.first, fields.second);
  }
  const std::vector<std::string> used = ReadGroupFiles(root, "cpu", "cpu.cfs_quota_us");
  const std::vector<std::string> period = ReadGroupFiles(root, "cpu", "cpu.cfs_period_us");
  for (std::size_t i = 0; i < used.size(); ++i) limit_to(used[i], period[i]);
  return quota;
}

int CountAllowedCores() {
  // The kernel refuses a set smaller than its own, whose size it doesn't tell.
  for (int num_cores = 1024; num_cores <= (1 << 20); num_cores *= 2) {
    cpu_set_t* const set = CPU_ALLOC(num_cores);
    const std::size_t set_bytes = CPU_ALLOC_SIZE(num_cores);
    const bool known = sched_getaffinity(0, set_bytes, set) == 0;
    const int num_allowed = known ? CPU_COUNT_S(set_bytes, set) : 0;
    CPU_FREE(set);
    if (known) return num_allowed;
  }
  return 1;
}

std::string ReadName(const std::string& root) {
  const std::string name = ReadEntry(root + "/proc/cpuinfo", "model name");
  if (!name.empty()) return name;
  utsname system;
  return uname(&system) == 0 ? system.machine : "CPU";
}

}  // namespace

std::optional<std::int64_t> ReadAvailableMemoryBytes(const std::string& root) {
  const std::string available = ReadEntry(root + "/proc/meminfo", "MemAvailable");
  return available.empty() ? std::nullopt : std::optional(ParseKibibytes(available));
}

CpuInfo ReadCpuInfo(const std::string& root) {
  const std::string max_clock_khz = ReadFile(root + "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
  return {.name = ReadName(root),
          .usable_cores = static_cast<int>(std::min<double>(CountAllowedCores(), std::ceil(ReadCpuQuota(root)))),
          .memory_bytes = ReadMemoryBytes(root),
          .l1_cache_bytes = ReadCacheBytes(root, "1"),
          .l2_cache_bytes = ReadCacheBytes(root, "2"),
          .l3_cache_bytes = ReadCacheBytes(root, "3"),
          .max_clock_hz = 1e3 * ParseInteger(max_clock_khz).value_or(0)};
}

}  // namespace ridgeline::device
