#include "server/engine/benchmark/table.h"

#include <algorithm>

#include "server/engine/benchmark/benchmarks.h"

namespace ridgeline::engine::benchmark {

absl::Span<const Benchmark> Benchmarks() {
  static const auto* const kBenchmarks = new std::vector<Benchmark>{
      MemoryHierarchy(),     ComputePeak(),   RooflineSweep(),  Coalescing(), Divergence(), Occupancy(),      GemmLadder(),
      AttentionAlgorithms(), OnlineSoftmax(), LaunchOverhead(), Transfer(),   Precision(),  AllocatorPairs(), BatchSize()};
  return *kBenchmarks;
}

const Benchmark* FindBenchmark(absl::string_view name) {
  const absl::Span<const Benchmark> all = Benchmarks();
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
