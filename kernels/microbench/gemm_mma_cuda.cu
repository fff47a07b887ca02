// The ladder's rung of mma.sync: bfloat16, B transposed, so that rows of either operand run along K.
//
//   gmem A, B ──cp.async──► smem ring[stage] ──ldmatrix──► frag A, B ──mma──► frag C ──► gmem C
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cp_async.cuh"
#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/ldmatrix.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/common/rounding.h"
#include "kernels/common/shared_memory.cuh"
#include "kernels/microbench/gemm_ladder_cuda.h"

namespace ridgeline::kernels::microbench {
namespace {

constexpr int kTile = 128, kDepth = 32, kStages = 4, kThreads = 256;
constexpr int kWarpRows = 64, kWarpColumns = 32;  // of C: two warps down, four across
constexpr int kRowElements = kDepth + 8;          // 80 bytes: eight rows that ldmatrix reads lie in different banks
constexpr int kChunk = 8;                         // elements of one copy of 16 bytes

struct SharedStorage {
  __nv_bfloat16 a[kStages][kTile][kRowElements];
  __nv_bfloat16 b[kStages][kTile][kRowElements];
};
static_assert(2 * sizeof(SharedStorage) <= 200 << 10, "two blocks share a multiprocessor");

// A tile's rows of one operand, [rows, k], to a stage; what lies outside is 0. kAligned: rows are whole chunks.
template <bool kAligned>
__device__ __forceinline__ void LoadTile(const __nv_bfloat16* from, std::int64_t rows, std::int64_t depth,
                                         std::int64_t first_row, std::int64_t k, __nv_bfloat16 (&to)[kTile][kRowElements]) {
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth / kChunk; i += kThreads) {
    const int row = i / (kDepth / kChunk), column = i % (kDepth / kChunk) * kChunk;
    const bool is_row = first_row + row < rows;
    const __nv_bfloat16* const source = from + (is_row ? first_row + row : 0) * depth;
    if constexpr (kAligned) {
      const bool is_inside = is_row && k + column < depth;
      CpAsync16(SharedAddress(&to[row][column]), source + (is_inside ? k + column : 0), is_inside);
    } else {
#pragma unroll
      for (int e = 0; e < kChunk; ++e) {
        to[row][column + e] = is_row && k + column + e < depth ? source[k + column + e] : __nv_bfloat16(0.0f);
      }
    }
  }
}

// Sums of a warp: [kWarpRows / 16][kWarpColumns / 8] tiles of mma.
using Sums = float[kWarpRows / 16][kWarpColumns / 8][4];

// As ldmatrix names them: lane l gives row l % 8 of matrix l / 8, of which A has them down first, B along K first.
__device__ __forceinline__ void MultiplyStage(const SharedStorage& storage, int stage, int warp_row, int warp_column,
                                              Sums& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32, in_matrix = lane % 8, matrix = lane / 8;
#pragma unroll
  for (int k = 0; k < kDepth; k += 16) {
    std::uint32_t a[kWarpRows / 16][4], b[kWarpColumns / 16][4];
#pragma unroll
    for (int i = 0; i < kWarpRows / 16; ++i) {
      LdMatrixX4(a[i], SharedAddress(&storage.a[stage][warp_row + i * 16 + matrix % 2 * 8 + in_matrix][k + matrix / 2 * 8]));
    }
#pragma unroll
    for (int j = 0; j < kWarpColumns / 16; ++j) {
      LdMatrixX4(b[j], SharedAddress(&storage.b[stage][warp_column + j * 16 + matrix / 2 * 8 + in_matrix][k + matrix % 2 * 8]));
    }
#pragma unroll
    for (int i = 0; i < kWarpRows / 16; ++i) {
#pragma unroll
      for (int j = 0; j < kWarpColumns / 8; ++j) {
        Mma16816<__nv_bfloat16>(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
}

template <bool kAligned>
__global__ void __launch_bounds__(kThreads, 2) MmaKernel(const __grid_constant__ CudaGemmRungParams params) {
  extern __shared__ __align__(16) std::uint8_t memory[];
  auto& storage = *reinterpret_cast<SharedStorage*>(memory);
  const auto* const a = static_cast<const __nv_bfloat16*>(params.a);
  const auto* const b = static_cast<const __nv_bfloat16*>(params.b_transposed);
  const std::int64_t first_row = std::int64_t{blockIdx.x} * kTile, first_column = std::int64_t{blockIdx.y} * kTile;
  const auto num_steps = static_cast<int>(CeilDivide(params.k, kDepth));
  const auto load = [&](int step) {
    if (step < num_steps) {
      LoadTile<kAligned>(a, params.m, params.k, first_row, std::int64_t{step} * kDepth, storage.a[step % kStages]);
      LoadTile<kAligned>(b, params.n, params.k, first_column, std::int64_t{step} * kDepth, storage.b[step % kStages]);
    }
    CpAsyncCommit();  // also of nothing, so that a wait always means the same step
  };
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_row = warp / 4 * kWarpRows, warp_column = warp % 4 * kWarpColumns;
  Sums sums = {};
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) load(step);
  for (int step = 0; step < num_steps; ++step) {
    CpAsyncWait<kStages - 2>();
    __syncthreads();  // the stage is there, and the one before it has been read by all
    load(step + kStages - 1);
    MultiplyStage(storage, step % kStages, warp_row, warp_column, sums);
  }
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < kWarpRows / 16; ++i) {
#pragma unroll
    for (int j = 0; j < kWarpColumns / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const std::int64_t row = first_row + warp_row + i * 16 + lane / 4 + e / 2 * 8;
        const std::int64_t column = first_column + warp_column + j * 8 + lane % 4 * 2 + e % 2;
        if (row < params.m && column < params.n) params.c[row * params.n + column] = sums[i][j][e];
      }
    }
  }
}

}  // namespace

CudaStatus LaunchMmaGemm(const CudaGemmRungParams& params, const CudaSite& site) {
  // Blocks that run side by side share columns of B.
  const LaunchShape shape = {
      .grid = dim3(static_cast<unsigned>(CeilDivide(params.m, kTile)), static_cast<unsigned>(CeilDivide(params.n, kTile))),
      .block = dim3(kThreads),
      .shared_memory_bytes = static_cast<int>(sizeof(SharedStorage))};
  return Launch(params.k % kChunk == 0 ? MmaKernel<true> : MmaKernel<false>, shape, site.stream, params);
}

}  // namespace ridgeline::kernels::microbench
