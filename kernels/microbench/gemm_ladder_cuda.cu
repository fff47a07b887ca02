// The ladder's rungs on CUDA cores, float32: one idea after the other, each of which reads memory less.
#include "kernels/microbench/gemm_ladder_cuda.h"

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/rounding.h"
#include "kernels/microbench/microbench_cuda.h"

namespace ridgeline::kernels::microbench {
namespace {

struct Float32Product {
  std::int64_t m, n, k;
  const float* a;  // [m, k]
  const float* b;  // [k, n]
  float* c;        // [m, n]
};

constexpr int kSide = 32;  // of a block's square of C on the first three rungs: a warp is a row of it, or a column

__device__ __forceinline__ void MultiplyElement(const Float32Product& p, std::int64_t i, std::int64_t j) {
  if (i >= p.m || j >= p.n) return;
  float sum = 0;
  for (std::int64_t k = 0; k < p.k; ++k) sum += p.a[i * p.k + k] * p.b[k * p.n + j];
  p.c[i * p.n + j] = sum;
}

// The lanes of a warp are in one column of C.
__global__ void __launch_bounds__(kSide* kSide) NaiveKernel(const __grid_constant__ Float32Product p) {
  MultiplyElement(p, std::int64_t{blockIdx.y} * kSide + threadIdx.x, std::int64_t{blockIdx.x} * kSide + threadIdx.y);
}

// In one row.
__global__ void __launch_bounds__(kSide* kSide) CoalescedKernel(const __grid_constant__ Float32Product p) {
  MultiplyElement(p, std::int64_t{blockIdx.y} * kSide + threadIdx.y, std::int64_t{blockIdx.x} * kSide + threadIdx.x);
}

__global__ void __launch_bounds__(kSide* kSide) SharedTilesKernel(const __grid_constant__ Float32Product p) {
  __shared__ float tile_a[kSide][kSide], tile_b[kSide][kSide];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const std::int64_t i = std::int64_t{blockIdx.y} * kSide + y, j = std::int64_t{blockIdx.x} * kSide + x;
  float sum = 0;
  for (std::int64_t k = 0; k < p.k; k += kSide) {
    tile_a[y][x] = i < p.m && k + x < p.k ? p.a[i * p.k + k + x] : 0.0f;
    tile_b[y][x] = k + y < p.k && j < p.n ? p.b[(k + y) * p.n + j] : 0.0f;
    __syncthreads();
#pragma unroll
    for (int step = 0; step < kSide; ++step) sum += tile_a[y][step] * tile_b[step][x];
    __syncthreads();
  }
  if (i < p.m && j < p.n) p.c[i * p.n + j] = sum;
}

// Register tiles: a block has kTile x kTile of C, a thread four squares of 4 x 4 that lie half a tile apart, so that the lanes
// of a warp read neighbouring words of shared memory. The next tiles of A and B come while these are multiplied.
//
//   gmem A [kTile, kDepth] ──registers, transposed──► smem a[kDepth][kTile] ─┐
//   gmem B [kDepth, kTile] ──registers──────────────► smem b[kDepth][kTile] ─┴──► 8 + 8 registers ──► 8 x 8 sums
constexpr int kTile = 128, kDepth = 8, kThreads = 256, kHalf = kTile / 2;
constexpr int kLoads = kTile * kDepth / kThreads;  // elements of each of A and B that a thread brings
constexpr int kRowPadding = 4;                     // of a's rows: writing down a column of A meets other banks

struct RegisterTiles {
  alignas(16) float a[kDepth][kTile + kRowPadding];
  alignas(16) float b[kDepth][kTile];
};

// kVector elements at once: 4 where rows are whole words, else 1. What lies outside is 0.
template <int kVector>
__device__ __forceinline__ void LoadRow(const float* row, std::int64_t column, std::int64_t columns, bool is_inside,
                                        float* to) {
  if constexpr (kVector == 4) {
    *reinterpret_cast<float4*>(to) = is_inside && column < columns ? *reinterpret_cast<const float4*>(row + column) : float4{};
  } else {
    *to = is_inside && column < columns ? row[column] : 0.0f;
  }
}

template <int kVector>
struct TileLoads {
  float a[kLoads], b[kLoads];

  __device__ __forceinline__ void Load(const Float32Product& p, std::int64_t first_row, std::int64_t first_column,
                                       std::int64_t k) {
#pragma unroll
    for (int i = 0; i < kLoads; i += kVector) {
      const int at = (i / kVector * kThreads + static_cast<int>(threadIdx.x)) * kVector;
      const std::int64_t row = first_row + at / kDepth, step = k + at / kTile;
      LoadRow<kVector>(p.a + row * p.k, k + at % kDepth, p.k, row < p.m, a + i);
      LoadRow<kVector>(p.b + step * p.n, first_column + at % kTile, p.n, step < p.k, b + i);
    }
  }
  __device__ __forceinline__ void Store(RegisterTiles& tiles) const {
#pragma unroll
    for (int i = 0; i < kLoads; i += kVector) {
      const int at = (i / kVector * kThreads + static_cast<int>(threadIdx.x)) * kVector;
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        tiles.a[at % kDepth + v][at / kDepth] = a[i + v];
        tiles.b[at / kTile][at % kTile + v] = b[i + v];
      }
    }
  }
};

__device__ __forceinline__ void Load8(const float* row, int first, float (&to)[8]) {
  *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(row + first);
  *reinterpret_cast<float4*>(to + 4) = *reinterpret_cast<const float4*>(row + kHalf + first);
}

template <int kVector>
__global__ void __launch_bounds__(kThreads) RegisterTilesKernel(const __grid_constant__ Float32Product p) {
  __shared__ RegisterTiles tiles;
  const std::int64_t first_row = std::int64_t{blockIdx.y} * kTile, first_column = std::int64_t{blockIdx.x} * kTile;
  const int y = static_cast<int>(threadIdx.x) / 16 * 4, x = static_cast<int>(threadIdx.x) % 16 * 4;
  float sums[8][8] = {};
  TileLoads<kVector> loads;
  loads.Load(p, first_row, first_column, 0);
  for (std::int64_t k = 0; k < p.k; k += kDepth) {
    loads.Store(tiles);
    __syncthreads();
    if (k + kDepth < p.k) loads.Load(p, first_row, first_column, k + kDepth);
#pragma unroll
    for (int step = 0; step < kDepth; ++step) {
      float a[8], b[8];
      Load8(tiles.a[step], y, a);
      Load8(tiles.b[step], x, b);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) sums[i][j] += a[i] * b[j];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::int64_t row = first_row + i / 4 * kHalf + y + i % 4;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const std::int64_t column = first_column + j / 4 * kHalf + x + j % 4;
      if (row < p.m && column < p.n) p.c[row * p.n + column] = sums[i][j];
    }
  }
}

LaunchShape ShapeOf(const Float32Product& p, int side, dim3 block) {
  return {.grid = dim3(static_cast<unsigned>(CeilDivide(p.n, side)), static_cast<unsigned>(CeilDivide(p.m, side))),
          .block = block};
}

}  // namespace

CudaStatus LaunchOnCuda(const CudaGemmRungParams& params, const CudaSite& site) {
  const Float32Product product = {.m = params.m,
                                  .n = params.n,
                                  .k = params.k,
                                  .a = static_cast<const float*>(params.a),
                                  .b = static_cast<const float*>(params.b),
                                  .c = params.c};
  const LaunchShape squares = ShapeOf(product, kSide, dim3(kSide, kSide)), tiles = ShapeOf(product, kTile, dim3(kThreads));
  switch (params.rung) {
    case CudaGemmRung::kNaive:
      return Launch(NaiveKernel, squares, site.stream, product);
    case CudaGemmRung::kCoalesced:
      return Launch(CoalescedKernel, squares, site.stream, product);
    case CudaGemmRung::kSharedTiles:
      return Launch(SharedTilesKernel, squares, site.stream, product);
    case CudaGemmRung::kRegisterTiles: {
      const bool has_whole_words = params.n % 4 == 0 && params.k % 4 == 0;
      return Launch(has_whole_words ? RegisterTilesKernel<4> : RegisterTilesKernel<1>, tiles, site.stream, product);
    }
    case CudaGemmRung::kMma:
      return LaunchMmaGemm(params, site);
    case CudaGemmRung::kWgmma:
      return LaunchWgmmaGemm(params, site);
    case CudaGemmRung::kLibrary:
      return LaunchGemm(params.type, params.m, params.n, params.k, params.a, params.b_transposed, params.c, site.cublas);
  }
  return cudaErrorInvalidValue;
}

}  // namespace ridgeline::kernels::microbench
