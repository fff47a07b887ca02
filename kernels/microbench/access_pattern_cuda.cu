// Patterns of access by whole warps: what a warp asks for at once is served by lines of 128 bytes, in sectors of 32.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/rounding.h"
#include "kernels/microbench/block_sum.cuh"
#include "kernels/microbench/workload_cuda.h"

namespace ridgeline::kernels::microbench {
namespace {

constexpr int kThreads = 1024;
constexpr int kUnroll = 16;  // elements in flight of one thread: 64 KiB of a block

// Neighbouring threads use neighbouring elements, `stride` apart.
__global__ void __launch_bounds__(kThreads, 1) StridedKernel(const __grid_constant__ StridedParams params) {
  const std::int64_t begin = params.count * blockIdx.x / gridDim.x, end = params.count * (blockIdx.x + 1) / gridDim.x;
  float sums[kUnroll] = {};
  std::int64_t i = begin + threadIdx.x;
  for (; i + (kUnroll - 1) * kThreads < end; i += kUnroll * kThreads) {
    float held[kUnroll];  // so that all loads are under way before the first is used
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) held[u] = params.source[(i + u * kThreads) * params.stride];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) sums[u] += held[u];
  }
  for (; i < end; i += kThreads) sums[0] += params.source[i * params.stride];
  float total = 0;
#pragma unroll
  for (const float sum : sums) total += sum;
  total = SumOfBlock(total);
  if (threadIdx.x == 0) params.slice_sums[blockIdx.x] = total;
}

// An element a thread: a warp's 128 bytes begin where the caller has put the pointers.
__global__ void __launch_bounds__(kThreads, 1) VectorCopyKernel(const __grid_constant__ VectorCopyParams params) {
  const std::int64_t begin = params.elements * blockIdx.x / gridDim.x / kThreads * kThreads;
  const std::int64_t end =
      blockIdx.x + 1 == gridDim.x ? params.elements : params.elements * (blockIdx.x + 1) / gridDim.x / kThreads * kThreads;
  for (std::int64_t pass = 0; pass < params.passes; ++pass) {
    for (std::int64_t first = begin + threadIdx.x; first < end; first += kUnroll * kThreads) {
      float held[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (first + u * kThreads < end) held[u] = params.source[first + u * kThreads];
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (first + u * kThreads < end) params.destination[first + u * kThreads] = held[u];
      }
    }
    asm volatile("" ::: "memory");  // a later pass does not make this one's stores superfluous
  }
}

constexpr int kTile = 32;     // a tile's rows and columns: a warp reads or writes a row of it
constexpr int kTileRows = 8;  // of a block's warps at a time

struct TilePlace {
  std::int64_t row, column;  // of the source
};

__device__ __forceinline__ TilePlace PlaceOf() { return {std::int64_t{blockIdx.y} * kTile, std::int64_t{blockIdx.x} * kTile}; }

// Reads rows, writes columns: the lanes of a warp write to 32 rows of the result.
__global__ void __launch_bounds__(kTile* kTileRows) TransposeRowsKernel(const __grid_constant__ TransposeParams params) {
  const TilePlace tile = PlaceOf();
  const std::int64_t column = tile.column + threadIdx.x;
  if (column >= params.size) return;
#pragma unroll
  for (int r = 0; r < kTile; r += kTileRows) {
    const std::int64_t row = tile.row + threadIdx.y + r;
    if (row < params.size) {
      params.destination[column * params.destination_stride + row] = params.source[row * params.source_stride + column];
    }
  }
}

// Through a tile in shared memory, so that rows are read and rows are written. Without padding a column of the tile lies in one
// bank, and a warp that reads it waits 32 times.
template <int kPadding>
__global__ void __launch_bounds__(kTile* kTileRows) TransposeTilesKernel(const __grid_constant__ TransposeParams params) {
  __shared__ float held[kTile][kTile + kPadding];
  const TilePlace tile = PlaceOf();
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
#pragma unroll
  for (int r = y; r < kTile; r += kTileRows) {
    const std::int64_t row = tile.row + r, column = tile.column + x;
    if (row < params.size && column < params.size) held[r][x] = params.source[row * params.source_stride + column];
  }
  __syncthreads();
#pragma unroll
  for (int r = y; r < kTile; r += kTileRows) {
    const std::int64_t row = tile.column + r, column = tile.row + x;  // of the result
    if (row < params.size && column < params.size) params.destination[row * params.destination_stride + column] = held[x][r];
  }
}

}  // namespace

CudaStatus LaunchOnCuda(const StridedParams& params, const CudaSite& site) {
  return Launch(StridedKernel, {.grid = dim3(site.num_sms), .block = dim3(kThreads)}, site.stream, params);
}

CudaStatus LaunchOnCuda(const VectorCopyParams& params, const CudaSite& site) {
  return Launch(VectorCopyKernel, {.grid = dim3(site.num_sms), .block = dim3(kThreads)}, site.stream, params);
}

CudaStatus LaunchOnCuda(const TransposeParams& params, const CudaSite& site) {
  const auto tiles = static_cast<unsigned>(CeilDivide(params.size, kTile));
  const LaunchShape shape = {.grid = dim3(tiles, tiles), .block = dim3(kTile, kTileRows)};
  switch (params.method) {
    case TransposeMethod::kRows:
      return Launch(TransposeRowsKernel, shape, site.stream, params);
    case TransposeMethod::kTiles:
      return Launch(TransposeTilesKernel<0>, shape, site.stream, params);
    case TransposeMethod::kPaddedTiles:
      return Launch(TransposeTilesKernel<1>, shape, site.stream, params);
  }
  return cudaErrorInvalidValue;
}

}  // namespace ridgeline::kernels::microbench
