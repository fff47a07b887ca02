// Arithmetic without memory: chains of fused multiply-adds in registers.
#pragma once

#include <cstdint>

#include "kernels/common/executor.h"

namespace ridgeline::kernels::microbench {

enum class FmaType : std::uint8_t { kFloat32, kFloat64 };

inline constexpr double kFmaFactor = 1 - 0x1p-10;
inline constexpr double kFmaAddend = 0x1p-12;

// Each task runs `chains` chains of vectors side by side: x = x * kFmaFactor + kFmaAddend, `iterations` times. Chain c begins
// with c + 1 in every lane. What of a chain waits for its own last result, the others fill.
struct FmaParams {
  FmaType type;
  int chains;  // one of kFmaChains
  std::int64_t iterations;
  int tasks;        // threads that compute; more than the executor has take turns
  double* results;  // [tasks]: the sum of the chains' first lanes at the end
};

inline constexpr int kFmaChains[] = {1, 2, 4, 8, 12};

// Of one task: 2 * lanes * chains * iterations. The lanes are those of the vectors that this processor has.
std::int64_t FmaTaskFlopsOnCpu(const FmaParams& params);

void RunOnCpu(const FmaParams& params, Executor& executor);

}  // namespace ridgeline::kernels::microbench
