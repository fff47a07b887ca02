// The ladder's rung of mma.sync: any type that the matrix unit has, B transposed, so that rows of either operand run along K.
// All types share the kernel: fragments are the same bytes.
//
//   gmem A, B ──cp.async──► smem ring[stage] ──ldmatrix──► frag A, B ──mma──► frag C ──► gmem C
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "kernels/common/cp_async.cuh"
#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/ldmatrix.cuh"
#include "kernels/common/mma_types.cuh"
#include "kernels/common/rounding.h"
#include "kernels/common/shared_memory.cuh"
#include "kernels/microbench/gemm_ladder_cuda.h"

namespace ridgeline::kernels::microbench {
namespace {

constexpr int kTile = 128, kStages = 4, kThreads = 256;
constexpr int kDepthBytes = 64;                       // of K, of one stage
constexpr int kWarpRows = 64, kWarpColumns = 32;      // of C: two warps down, four across
constexpr int kChunkBytes = 16;                       // of one copy
constexpr int kRowBytes = kDepthBytes + kChunkBytes;  // eight rows that ldmatrix reads lie in different banks

struct SharedStorage {
  alignas(16) std::uint8_t a[kStages][kTile][kRowBytes];
  alignas(16) std::uint8_t b[kStages][kTile][kRowBytes];
};
static_assert(2 * sizeof(SharedStorage) <= 200 << 10, "two blocks share a multiprocessor");

// Where mma.sync has no 8-bit floats of its own (sm_90) it widens them first, in more registers.
template <typename T>
constexpr int kBlocks = sizeof(T) == 1 ? 1 : 2;

// One operand, [rows, row_bytes].
struct Operand {
  const std::uint8_t* data;
  std::int64_t rows;
  std::int64_t row_bytes;
};

// A tile's rows to a stage; what lies outside is 0. kAligned: rows are whole chunks. Else kElementBytes at a time.
template <int kElementBytes, bool kAligned>
__device__ __forceinline__ void LoadTile(const Operand& from, std::int64_t first_row, std::int64_t first_byte,
                                         std::uint8_t (&to)[kTile][kRowBytes]) {
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepthBytes / kChunkBytes; i += kThreads) {
    const int row = i / (kDepthBytes / kChunkBytes), byte = i % (kDepthBytes / kChunkBytes) * kChunkBytes;
    const bool is_row = first_row + row < from.rows;
    const std::uint8_t* const source = from.data + (is_row ? first_row + row : 0) * from.row_bytes;
    if constexpr (kAligned) {
      const bool is_inside = is_row && first_byte + byte < from.row_bytes;
      CpAsync16(SharedAddress(&to[row][byte]), source + (is_inside ? first_byte + byte : 0), is_inside);
    } else {
#pragma unroll
      for (int e = 0; e < kChunkBytes; e += kElementBytes) {
        const bool is_inside = is_row && first_byte + byte + e < from.row_bytes;
        std::uint32_t element = 0;
        if (is_inside) memcpy(&element, __builtin_assume_aligned(source + first_byte + byte + e, kElementBytes), kElementBytes);
        memcpy(__builtin_assume_aligned(&to[row][byte + e], kElementBytes), &element, kElementBytes);
      }
    }
  }
}

// Sums of a warp: [kWarpRows / 16][kWarpColumns / 8] tiles of mma.
using Sums = float[kWarpRows / 16][kWarpColumns / 8][4];

// As ldmatrix names them: lane l gives row l % 8 of matrix l / 8, of which A has them down first, B along K first.
template <typename T>
__device__ __forceinline__ void MultiplyStage(const SharedStorage& storage, int stage, int warp_row, int warp_column,
                                              Sums& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32, in_matrix = lane % 8, matrix = lane / 8;
#pragma unroll
  for (int k = 0; k < kDepthBytes; k += 32) {
    std::uint32_t a[kWarpRows / 16][4], b[kWarpColumns / 16][4];
#pragma unroll
    for (int i = 0; i < kWarpRows / 16; ++i) {
      LdMatrixX4(a[i], SharedAddress(&storage.a[stage][warp_row + i * 16 + matrix % 2 * 8 + in_matrix][k + matrix / 2 * 16]));
    }
#pragma unroll
    for (int j = 0; j < kWarpColumns / 16; ++j) {
      LdMatrixX4(b[j],
                 SharedAddress(&storage.b[stage][warp_column + j * 16 + matrix / 2 * 8 + in_matrix][k + matrix % 2 * 16]));
    }
#pragma unroll
    for (int i = 0; i < kWarpRows / 16; ++i) {
#pragma unroll
      for (int j = 0; j < kWarpColumns / 8; ++j) {
        const std::uint32_t column[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
        Mma32Bytes<T>(sums[i][j], a[i], column);
      }
    }
  }
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads, kBlocks<T>) MmaKernel(const __grid_constant__ CudaGemmRungParams params) {
  extern __shared__ __align__(16) std::uint8_t memory[];
  auto& storage = *reinterpret_cast<SharedStorage*>(memory);
  const std::int64_t row_bytes = params.k * static_cast<std::int64_t>(sizeof(T));
  const Operand a = {static_cast<const std::uint8_t*>(params.a), params.m, row_bytes};
  const Operand b = {static_cast<const std::uint8_t*>(params.b_transposed), params.n, row_bytes};
  const std::int64_t first_row = std::int64_t{blockIdx.x} * kTile, first_column = std::int64_t{blockIdx.y} * kTile;
  const auto num_steps = static_cast<int>(CeilDivide(row_bytes, kDepthBytes));
  const auto load = [&](int step) {
    if (step < num_steps) {
      LoadTile<sizeof(T), kAligned>(a, first_row, std::int64_t{step} * kDepthBytes, storage.a[step % kStages]);
      LoadTile<sizeof(T), kAligned>(b, first_column, std::int64_t{step} * kDepthBytes, storage.b[step % kStages]);
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
    MultiplyStage<T>(storage, step % kStages, warp_row, warp_column, sums);
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

using Kernel = void (*)(CudaGemmRungParams);

template <typename T>
Kernel ChooseKernel(std::int64_t k) {
  return k * static_cast<std::int64_t>(sizeof(T)) % kChunkBytes == 0 ? MmaKernel<T, true> : MmaKernel<T, false>;
}

Kernel ChooseKernel(DataType type, std::int64_t k) {
  switch (type) {
    case DataType::kFloat32:
      return ChooseKernel<Tf32>(k);
    case DataType::kFloat16:
      return ChooseKernel<__half>(k);
    case DataType::kBFloat16:
      return ChooseKernel<__nv_bfloat16>(k);
    case DataType::kFloat8E4M3:
      return ChooseKernel<__nv_fp8_e4m3>(k);
    case DataType::kFloat8E5M2:
      return ChooseKernel<__nv_fp8_e5m2>(k);
    default:
      return nullptr;
  }
}

}  // namespace

CudaStatus LaunchMmaGemm(const CudaGemmRungParams& params, const CudaSite& site) {
  // Blocks that run side by side share columns of B.
  const LaunchShape shape = {
      .grid = dim3(static_cast<unsigned>(CeilDivide(params.m, kTile)), static_cast<unsigned>(CeilDivide(params.n, kTile))),
      .block = dim3(kThreads),
      .shared_memory_bytes = static_cast<int>(sizeof(SharedStorage))};
  const Kernel kernel = ChooseKernel(params.type, params.k);
  if (kernel == nullptr) return cudaErrorInvalidValue;
  return Launch(kernel, shape, site.stream, params);
}

}  // namespace ridgeline::kernels::microbench
