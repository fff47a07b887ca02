// The rows of the table, each in a file of its name.
#pragma once

#include "server/engine/benchmark/table.h"

namespace ridgeline::engine::benchmark {

Benchmark MemoryHierarchy(device::DeviceType type);
Benchmark ComputePeak(device::DeviceType type);
Benchmark RooflineSweep(device::DeviceType type);
Benchmark Coalescing(device::DeviceType type);
Benchmark AttentionAlgorithms(device::DeviceType type);
Benchmark OnlineSoftmax(device::DeviceType type);
Benchmark LaunchOverhead(device::DeviceType type);
Benchmark GemmLadder(device::DeviceType type);
Benchmark Precision(device::DeviceType type);
Benchmark AllocatorPairs(device::DeviceType type);
Benchmark BatchSize();
Benchmark Fusion(device::DeviceType type);
Benchmark TransformerStep(device::DeviceType type);
Benchmark Recomputation(device::DeviceType type);

// Effects that a CPU does not have.
Benchmark Divergence();
Benchmark Occupancy();
Benchmark Transfer();

}  // namespace ridgeline::engine::benchmark
