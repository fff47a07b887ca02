// What Linux says about the processor and about this process' share of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ridgeline::device {

struct CpuInfo {
  std::string name;                 // product name; the architecture's if the kernel gives none
  int usable_cores = 1;             // that this process may run on: affinity, at most the control group's quota
  std::int64_t memory_bytes = 0;    // that this process may use: of the machine, at most the control group's limit
  std::int64_t l1_cache_bytes = 0;  // data caches of one core; 0 = unknown
  std::int64_t l2_cache_bytes = 0;
  std::int64_t l3_cache_bytes = 0;  // shared
  double max_clock_hz = 0;          // of one core; 0 = unknown
};

// Memory that the machine could give to new work without swapping; nothing if the kernel does not say.
std::optional<std::int64_t> ReadAvailableMemoryBytes(const std::string& root = "");

// Reads /proc and /sys below `root` ("" = the machine's own).
CpuInfo ReadCpuInfo(const std::string& root = "");

}  // namespace ridgeline::device
