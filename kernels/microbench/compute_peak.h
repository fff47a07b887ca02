// Arithmetic without memory: chains of fused multiply-adds in registers, and products of the matrix unit.
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

// CUDA: the same chains, of one number each, in every thread of a block of so many warps on each multiprocessor. Chain c begins
// with c + 1.
struct CudaFmaParams {
  FmaType type;
  int chains;  // one of kCudaChains
  int warps;   // 1 to 32
  std::int64_t iterations;
  double* results;  // [num_slots, 32 * warps]: the sum of the chains at the end
};

inline constexpr int kCudaChains[] = {1, 2, 4, 8};

enum class MatrixUnit : std::uint8_t {
  kMma,   // a warp's products of operands in registers
  kWgmma  // a warpgroup's products of operands in shared memory; sm_90a
};

enum class MatrixType : std::uint8_t { kTf32, kFloat16, kBFloat16, kFloat8E4M3, kFloat8E5M2, kInt8 };

// CUDA: each warp of a block on each multiprocessor (with kWgmma, each warpgroup) adds products of kMatrixStepBytes of K to
// tiles of sums, `iterations` times A · B and as often -A · B, and at last A · B once more, with
//
//   A[i,k] = ±(1 + i % 4)   B[k,j] = ±(1 + j % 4)   + where k is even
//
// so that all sums are small whole numbers and A · B is what remains: K times (1 + i % 4) * (1 + j % 4). The sums of chain c
// begin with c, not with 0: a compiler would compute chains that are the same only once.
struct MatrixPeakParams {
  MatrixUnit unit;
  MatrixType type;
  int chains;  // of kMma: tiles of sums of a warp, one of kCudaChains; of kWgmma: 1
  int warps;   // of a block: 1 to 16; of kWgmma: 4 or 8
  std::int64_t iterations;
  float* results;  // kMma: [num_slots, warps, chains, 16, 8]; kWgmma: [num_slots, warps / 4, 64, 256]
};

inline constexpr int kMatrixStepBytes = 32;  // of K, of one instruction
inline constexpr int kWgmmaTileSteps = 4;    // of K, of one product in shared memory
inline constexpr int kMmaRows = 16, kMmaColumns = 8;
inline constexpr int kWgmmaRows = 64, kWgmmaColumns = 256;

constexpr int MatrixElementBytes(MatrixType type) {
  switch (type) {
    case MatrixType::kTf32:
      return 4;
    case MatrixType::kFloat16:
    case MatrixType::kBFloat16:
      return 2;
    default:
      return 1;
  }
}

// What one product A · B has of K.
constexpr int MatrixDepth(const MatrixPeakParams& params) {
  const int step = kMatrixStepBytes / MatrixElementBytes(params.type);
  return params.unit == MatrixUnit::kMma ? step : step * kWgmmaTileSteps;
}

// Elements of `results` of one slot, and operations of all of a run's products there.
constexpr std::int64_t MatrixSlotResults(const MatrixPeakParams& params) {
  return params.unit == MatrixUnit::kMma ? std::int64_t{params.warps} * params.chains * kMmaRows * kMmaColumns
                                         : std::int64_t{params.warps / 4} * kWgmmaRows * kWgmmaColumns;
}
constexpr std::int64_t MatrixSlotFlops(const MatrixPeakParams& params) {
  return 2 * MatrixSlotResults(params) * MatrixDepth(params) * (2 * params.iterations + 1);
}

void RunOnCpu(const FmaParams& params, Executor& executor);

}  // namespace ridgeline::kernels::microbench
