// Callers of every kind at once, those that mean well and those that don't:
//
//   paced      Attend calls at a rate that doesn't wait for answers; some have deadlines too short, some are cancelled
//   decoding   sessions over KV caches, step by step on streams, some of which break off in the middle
//   measuring  fused operations; a benchmark that takes the device for itself now and then
//   rude       streams that never read, connections that say nothing or half of something, storms of new ones
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/resilience/tally.h"

namespace ridgeline::resilience {

struct CrowdOptions {
  std::string address;             // host:port of a daemon
  double requests_per_second = 0;  // of the paced ones
  std::uint64_t seed = 0;
};

// Calls from its construction to its destruction, which waits for each call's end and closes every connection.
class Crowd {
 public:
  // `tally` outlives the crowd.
  Crowd(const CrowdOptions& options, Tally& tally);
  ~Crowd();
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

 private:
  std::atomic<bool> ends_{false};
  std::vector<std::thread> threads_;
};

}  // namespace ridgeline::resilience
