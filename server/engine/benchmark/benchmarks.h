// The rows of the table, each in a file of its name.
#pragma once

#include "server/engine/benchmark/table.h"

namespace ridgeline::engine::benchmark {

Benchmark MemoryHierarchy(device::DeviceType type);
Benchmark ComputePeak();
Benchmark RooflineSweep();
Benchmark Coalescing();
Benchmark AttentionAlgorithms();
Benchmark OnlineSoftmax();
Benchmark LaunchOverhead();
Benchmark GemmLadder();
Benchmark Precision();
Benchmark AllocatorPairs();
Benchmark BatchSize();
Benchmark Fusion(device::DeviceType type);

// Effects that a CPU does not have.
Benchmark Divergence();
Benchmark Occupancy();
Benchmark Transfer();

}  // namespace ridgeline::engine::benchmark
