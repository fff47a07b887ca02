// The levels of a memory hierarchy, found from the latency of dependent loads over growing working sets.
#pragma once

#include <cstdint>
#include <vector>

namespace ridgeline::engine::benchmark {

struct LatencySample {
  std::int64_t working_set_bytes;
  double seconds;  // of one load
};

// A plateau of the latency curve: neighbours whose latencies differ little. What lies between two plateaus is partly in either
// level, and in none of these.
struct Level {
  std::int64_t smallest_bytes;  // working sets that saw its latency
  std::int64_t largest_bytes;
  double seconds;  // the plateau's median
};

// `samples` in the order of their sizes.
std::vector<Level> FindLevels(const std::vector<LatencySample>& samples);

}  // namespace ridgeline::engine::benchmark
