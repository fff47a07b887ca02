// Fused operations, and a benchmark now and then.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "tests/resilience/tally.h"

namespace ridgeline::resilience {

// Softmax over rows, until `ends`.
void Fuse(const std::string& address, std::uint64_t seed, Tally& tally, const std::atomic<bool>& ends);

// A small benchmark, a pause, and so on until `ends`. It compares its kernel's result with a reference before it measures.
void Benchmark(const std::string& address, Tally& tally, const std::atomic<bool>& ends);

}  // namespace ridgeline::resilience
