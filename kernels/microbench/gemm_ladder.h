// Matrix products from the plainest to a library's, one idea a rung.
#pragma once

#include <cstdint>

#include "kernels/common/executor.h"

namespace ridgeline::kernels::microbench {

enum class GemmRung : std::uint8_t {
  kNaive,      // for i, j, k: B is read down its columns
  kReordered,  // for i, k, j: B is read along its rows, and the compiler uses vectors
  kBlocked,    // the same on blocks of B that stay in the L2 cache
  kTiled,      // GemmOnCpu: packed blocks, tiles of C in registers, fused multiply-adds
  kLibrary     // OpenBLAS
};

// C[m,n] = A[m,k] · B[k,n], row-major, float32, all cores.
struct GemmRungParams {
  GemmRung rung;
  std::int64_t m, n, k;
  const float* a;
  const float* b;             // [k, n]; all but kTiled
  const float* b_transposed;  // [n, k]; kTiled
  float* c;
  void* workspace;  // kTiled: GemmWorkspaceBytesOnCpu, aligned to 64; else null
};

void RunOnCpu(const GemmRungParams& params, Executor& executor);

}  // namespace ridgeline::kernels::microbench
