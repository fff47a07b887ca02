// A kernel whose arithmetic intensity is chosen: it reads an array once and computes as much as asked with what it read.
#pragma once

#include <cstdint>

#include "kernels/common/executor.h"

namespace ridgeline::kernels::microbench {

// The array is cut into granules of kIntensityGranule elements. Of a granule, `join` elements at a time, kIntensityGranule /
// join apart, become their maximum m, which counts as no FLOP:
//
//   y = m;   y = 0.5 * y + m, `multiply_adds` times;   sum += kIntensityWeight * y, or with `adds_only` sum += y
//
// so the intensity is (2 * multiply_adds + 2) / (4 * join) FLOP per byte, and half of that with adds_only, which allows no
// multiply_adds.
struct IntensityParams {
  const float* source;    // [elements]
  std::int64_t elements;  // a multiple of kIntensityGranule
  int join;               // 1, 2 or 4
  std::int64_t multiply_adds;
  bool adds_only;
  float* slice_sums;  // [num_slots]: sums over one slice for each slot
};

inline constexpr std::int64_t kIntensityGranule = 4096;
inline constexpr float kIntensityWeight = 0.75f;

void RunOnCpu(const IntensityParams& params, Executor& executor);

}  // namespace ridgeline::kernels::microbench
