// The same arithmetic by threads that take one path or several.
#pragma once

#include <cstdint>

namespace ridgeline::kernels::microbench {

inline constexpr int kMaxPaths = 32;

// Path p is code of its own: x = x * kPathFactor + PathAddend(p), `iterations` times, from x = 1.
inline constexpr float kPathFactor = 1 - 0x1p-10f;
constexpr float PathAddend(int path) { return 0x1p-12f * static_cast<float>(path + 1); }

// Only on CUDA devices: a CPU's threads wait for nobody's path.
struct DivergenceParams {
  bool aligned_to_warps;  // thread t takes path (t / 32) % paths, so that a warp has one, else t % paths
  int paths;              // [1, kMaxPaths]
  std::int64_t iterations;
  std::int64_t num_warps;  // a multiple of kDivergenceBlockWarps
  float* results;          // [num_warps, 32]
};

inline constexpr int kDivergenceBlockWarps = 8;

}  // namespace ridgeline::kernels::microbench
