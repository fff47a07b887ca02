// Matrix products from the plainest to a library's, one idea a rung.
#pragma once

#include <cstdint>

#include "kernels/common/data_type.h"
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

enum class CudaGemmRung : std::uint8_t {
  kNaive,          // a thread an element of C; the lanes of a warp read rows of A
  kCoalesced,      // the same, but lanes read along a row of B, and write along one of C
  kSharedTiles,    // tiles of A and B in shared memory: each element is read from memory once a tile
  kRegisterTiles,  // 8 x 8 elements of C in a thread's registers: each element in shared memory is read once for eight
  kMma,            // the matrix unit by mma.sync, copies that pass by the registers (cp.async)
  kWgmma,          // the matrix unit by wgmma, fed by the copy engine (TMA), whose boxes two blocks share; sm_90a
  kLibrary         // cuBLAS
};

// The ladder on CUDA: C = A · B, float32 sums. float32 up to kRegisterTiles; kMma has every float type, of whose float32 it
// reads 19 bits (TF32), 8-bit floats on sm_89 and newer; kWgmma bfloat16; the library float32, float16 and bfloat16.
struct CudaGemmRungParams {
  CudaGemmRung rung;
  DataType type;  // of a and b
  std::int64_t m, n, k;
  const void* a;             // [m, k]
  const void* b;             // [k, n]; float32 rungs but the library
  const void* b_transposed;  // [n, k]; the others
  float* c;                  // [m, n]
};

// What the copy engine can describe: whole units of 16 bytes in a row of each.
constexpr bool WgmmaRungFits(std::int64_t n, std::int64_t k) { return k % 8 == 0 && n % 4 == 0; }

// CUDA: destination = source, rounded to the nearest 8-bit float; what is larger than its range becomes the largest of it.
struct ToFloat8Params {
  DataType type;  // kFloat8E4M3 or kFloat8E5M2
  std::int64_t elements;
  const float* source;
  void* destination;
};

void RunOnCpu(const GemmRungParams& params, Executor& executor);

}  // namespace ridgeline::kernels::microbench
