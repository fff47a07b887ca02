#include "tests/resilience/process_usage.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"

namespace ridgeline::resilience {

ProcessUsage UsageOf(pid_t process) {
  const std::string folder = absl::StrCat("/proc/", process);
  ProcessUsage usage;
  std::ifstream status(folder + "/status");
  for (std::string word; status >> word;) {
    if (word == "VmRSS:") {
      status >> usage.resident_bytes;
      usage.resident_bytes *= 1024;
    } else if (word == "Threads:") {
      status >> usage.num_threads;
    }
  }
  const std::filesystem::directory_iterator files(folder + "/fd");
  usage.num_files = static_cast<int>(std::distance(begin(files), end(files)));
  return usage;
}

}  // namespace ridgeline::resilience
