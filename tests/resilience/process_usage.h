// What a process holds of its system's, as /proc says it.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace ridgeline::resilience {

struct ProcessUsage {
  std::int64_t resident_bytes = 0;
  int num_threads = 0;
  int num_files = 0;  // open descriptors, sockets among them
};

ProcessUsage UsageOf(pid_t process);

}  // namespace ridgeline::resilience
