// What compute_peak's two forms share.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/microbench/compute_peak.h"
#include "server/device/buffer.h"
#include "server/device/device.h"
#include "server/engine/benchmark/table.h"

namespace ridgeline::engine::benchmark {

Benchmark ComputePeakOnCuda();

// Whether the first `num_sums` doubles of `results` are each the sum of that many chains of multiply-adds, computed one by one.
absl::Status CheckFmaSums(device::Lane& lane, const device::Buffer& results, std::int64_t num_sums,
                          kernels::microbench::FmaType type, int chains, std::int64_t iterations);

}  // namespace ridgeline::engine::benchmark
