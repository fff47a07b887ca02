// What compute_peak's two forms share.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/microbench/compute_peak.h"
#include "server/engine/benchmark/table.h"

namespace ridgeline::engine::benchmark {

Benchmark ComputePeakOnCuda();

// A chain of multiply-adds, element by element. Each is rounded once everywhere, so not a bit may differ.
template <typename T>
T FmaChainAtEnd(T x, std::int64_t iterations) {
  for (std::int64_t i = 0; i < iterations; ++i) {
    x = std::fma(x, static_cast<T>(kernels::microbench::kFmaFactor), static_cast<T>(kernels::microbench::kFmaAddend));
  }
  return x;
}

}  // namespace ridgeline::engine::benchmark
