#include "server/engine/benchmark/table.h"

#include <algorithm>

#include "server/engine/benchmark/benchmarks.h"

namespace ridgeline::engine::benchmark {

namespace {

std::vector<Benchmark> MakeTable(device::DeviceType type) {
  return {MemoryHierarchy(type), ComputePeak(type),    RooflineSweep(type), Coalescing(type),          Divergence(),
          Occupancy(),           GemmLadder(type),     Fusion(type),        AttentionAlgorithms(type), OnlineSoftmax(type),
          LaunchOverhead(type),  Transfer(),           Precision(type),     AllocatorPairs(type),      BatchSize(),
          Recomputation(type),   TransformerStep(type)};
}

}  // namespace

absl::Span<const Benchmark> Benchmarks(device::DeviceType type) {
  static const auto* const kOnCpu = new std::vector<Benchmark>(MakeTable(device::DeviceType::kCpu));
  static const auto* const kOnCuda = new std::vector<Benchmark>(MakeTable(device::DeviceType::kCuda));
  return type == device::DeviceType::kCpu ? *kOnCpu : *kOnCuda;
}

const Benchmark* FindBenchmark(absl::string_view name, device::DeviceType type) {
  const absl::Span<const Benchmark> all = Benchmarks(type);
  const auto found = std::find_if(all.begin(), all.end(), [&](const Benchmark& each) { return each.name == name; });
  return found == all.end() ? nullptr : &*found;
}

Description Describe(const Benchmark& benchmark, const device::DeviceInfo& device) {
  return {.name = benchmark.name,
          .claim = benchmark.claim,
          .axes = benchmark.axes,
          .plot = benchmark.plot,
          .unsupported_reason = benchmark.unsupported_reason(device)};
}

}  // namespace ridgeline::engine::benchmark
