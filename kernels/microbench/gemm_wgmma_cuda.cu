// The ladder's top rung: wgmma fed by the copy engine. bfloat16, B transposed, so that rows of either operand run along K.
// Clusters of two blocks, as many as the chip holds, take one square of C after the other; each block has half of its rows.
// What both need of B comes from memory once: each block fetches half of it for the two. C leaves by the copy engine too, while
// the next square is multiplied. README.md says what each of these is worth.
//
//   gmem A, B ──TMA, B to both blocks──► smem ring[stage] ──wgmma──► 64 x 256 sums a warpgroup ──► smem c ──TMA──► gmem C
//     producer warp              full[] / empty[]            two consumer warpgroups
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/common/cluster.cuh"
#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/named_barrier.cuh"
#include "kernels/common/register_budget.cuh"
#include "kernels/common/rounding.h"
#include "kernels/common/shared_memory.cuh"
#include "kernels/common/tensor_copy.cuh"
#include "kernels/common/tensor_map.h"
#include "kernels/common/wgmma.cuh"
#include "kernels/microbench/gemm_ladder_cuda.h"
#include "kernels/microbench/ring_place.cuh"

namespace ridgeline::kernels::microbench {
namespace {

constexpr int kTileRows = 128, kTileColumns = 256, kDepth = 64, kStages = 4;
constexpr int kClusterBlocks = 2, kConsumers = 2, kConsumerRows = 64;
constexpr int kThreads = 128 * (1 + kConsumers);
constexpr int kBoxRows = 128;  // of A all, of B what one block fetches
constexpr int kRowBytes = kDepth * 2;
constexpr int kStageBytes = (kTileRows + kTileColumns) * kRowBytes;
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
constexpr int kStoreColumns = 32;  // of C, of one copy: a row of the swizzle
constexpr int kStoreBoxes = 2;     // that a consumer has in shared memory
constexpr int kStoreBytes = kConsumerRows * kStoreColumns * 4;
static_assert(kRowBytes == 128, "a row of a stage is a row of the swizzle");
static_assert(kTileRows == kBoxRows && kTileColumns == kClusterBlocks * kBoxRows, "a box for each block");
static_assert(kTileRows == kConsumers * kConsumerRows, "a consumer has the rows of one wgmma");

// Squares of C are taken in bands of so many rows of squares, down each column of the band, so that those under way at one time
// share their rows of A and B.
constexpr int kBandSquares = 8;

struct SharedStorage {
  alignas(1024) std::uint8_t a[kStages][kTileRows * kRowBytes];
  alignas(1024) std::uint8_t b[kStages][kTileColumns * kRowBytes];
  alignas(1024) std::uint8_t c[kConsumers][kStoreBoxes][kStoreBytes];
  std::uint64_t full[kStages];   // the stage's bytes have come
  std::uint64_t empty[kStages];  // the consumers of both blocks have read it
};

static_assert(sizeof(SharedStorage) <= 227 << 10, "a block's shared memory");

struct Arguments {
  CUtensorMap a, b, c;
  int num_steps;      // of kDepth along K
  int rows, columns;  // of squares of C
};

struct Square {
  int row, column;
};

__device__ __forceinline__ Square SquareAt(const Arguments& arguments, int idx) {
  const int band_size = kBandSquares * arguments.columns;
  const int first_row = idx / band_size * kBandSquares, in_band = idx % band_size;
  const int band_rows = min(kBandSquares, arguments.rows - first_row);
  return {first_row + in_band % band_rows, in_band / band_rows};
}

// By one thread of each block.
__device__ __forceinline__ void Produce(const Arguments& arguments, SharedStorage& storage, int rank) {
  constexpr std::uint16_t kBothBlocks = (1 << kClusterBlocks) - 1;
  RingPlace<kStages> place;
  for (int idx = static_cast<int>(blockIdx.x) / kClusterBlocks; idx < arguments.rows * arguments.columns;
       idx += static_cast<int>(gridDim.x) / kClusterBlocks) {
    const Square square = SquareAt(arguments, idx);
    const int row = (square.row * kClusterBlocks + rank) * kTileRows, column = square.column * kTileColumns + rank * kBoxRows;
    for (int step = 0; step < arguments.num_steps; ++step, place.Advance()) {
      const std::uint32_t full = SharedAddress(&storage.full[place.idx]);
      MBarrierWait(SharedAddress(&storage.empty[place.idx]), place.parity ^ 1);
      MBarrierArriveExpecting(full, kStageBytes);
      TensorLoad(SharedAddress(storage.a[place.idx]), &arguments.a, full, {step * kDepth, row, 0, 0});
      TensorLoadToCluster(SharedAddress(storage.b[place.idx]) + rank * kBoxRows * kRowBytes, &arguments.b, full,
                          {step * kDepth, column, 0, 0}, kBothBlocks);
    }
  }
}

// A lane of each of a block's warps tells both producers.
__device__ __forceinline__ void Release(SharedStorage& storage, int stage) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane < kClusterBlocks) ArriveInCluster(SharedAddress(&storage.empty[stage]), lane);
}

// The sums of one warpgroup's rows of a square. The group before the newest is waited for: the matrix unit is never idle.
__device__ __forceinline__ void Multiply(SharedStorage& storage, int consumer, int num_steps, RingPlace<kStages>& place,
                                         float (&sums)[128]) {
#pragma unroll
  for (float& sum : sums) sum = 0;
  int last_stage = -1;
  for (int step = 0; step < num_steps; ++step, place.Advance()) {
    MBarrierWait(SharedAddress(&storage.full[place.idx]), place.parity);
    const WgmmaOperand a(SharedAddress(storage.a[place.idx]) + consumer * kConsumerRows * kRowBytes, 0);
    const WgmmaOperand b(SharedAddress(storage.b[place.idx]), 0);
    PinRegisters(sums);
    WgmmaFence();
#pragma unroll
    for (int k = 0; k < kRowBytes; k += 32) Wgmma<kTileColumns>::Shared<__nv_bfloat16, true>(sums, a.At(k), b.At(k));
    WgmmaCommit();
    WgmmaWait<1>();
    if (last_stage >= 0) Release(storage, last_stage);
    last_stage = place.idx;
  }
  WgmmaWait<0>();
  PinRegisters(sums);
  Release(storage, last_stage);
}

// Four groups of eight columns, the fragments that a box has, from registers to its swizzle.
__device__ __forceinline__ void FillBox(std::uint8_t* box, const float* sums) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < kStoreColumns / 8; ++i) {
    const int chunk = (2 * i + lane % 4 / 2) ^ (lane / 4);
    std::uint8_t* const to = box + (warp * 16 + lane / 4) * kRowBytes + chunk * 16 + lane % 2 * 8;
    *reinterpret_cast<float2*>(to) = {sums[4 * i], sums[4 * i + 1]};
    *reinterpret_cast<float2*>(to + 8 * kRowBytes) = {sums[4 * i + 2], sums[4 * i + 3]};
  }
}

// A warpgroup's sums leave by the copy engine, which reads the last boxes while the next square is multiplied already.
__device__ __forceinline__ void Store(const Arguments& arguments, SharedStorage& storage, int consumer, int row, int column,
                                      const float (&sums)[128]) {
  const bool is_storer = threadIdx.x % 128 == 0;
#pragma unroll
  for (int first = 0; first < kTileColumns; first += kStoreBoxes * kStoreColumns) {
    if (is_storer) TensorStoreWaitRead();
    NamedBarrierSync(1 + consumer, 128);  // the boxes are free
#pragma unroll
    for (int box = 0; box < kStoreBoxes; ++box) {
      FillBox(storage.c[consumer][box], sums + (first + box * kStoreColumns) / 2);
    }
    SharedToAsyncFence();
    NamedBarrierSync(1 + consumer, 128);  // and full
    if (!is_storer) continue;
#pragma unroll
    for (int box = 0; box < kStoreBoxes; ++box) {
      TensorStore(&arguments.c, SharedAddress(storage.c[consumer][box]), {column + first + box * kStoreColumns, row, 0, 0});
    }
    TensorStoreCommit();
  }
}

__device__ __forceinline__ void Consume(const Arguments& arguments, SharedStorage& storage, int rank, int consumer) {
  RingPlace<kStages> place;
  for (int idx = static_cast<int>(blockIdx.x) / kClusterBlocks; idx < arguments.rows * arguments.columns;
       idx += static_cast<int>(gridDim.x) / kClusterBlocks) {
    const Square square = SquareAt(arguments, idx);
    float sums[128];
    Multiply(storage, consumer, arguments.num_steps, place, sums);
    Store(arguments, storage, consumer, (square.row * kClusterBlocks + rank) * kTileRows + consumer * kConsumerRows,
          square.column * kTileColumns, sums);
  }
  if (threadIdx.x % 128 == 0) TensorStoreWaitRead();  // shared memory outlives what reads it
}

__global__ void __launch_bounds__(kThreads, 1) WgmmaGemmKernel(const __grid_constant__ Arguments arguments) {
  extern __shared__ __align__(1024) std::uint8_t memory[];
  auto& storage = *reinterpret_cast<SharedStorage*>(memory);
  const int warpgroup = static_cast<int>(threadIdx.x) / 128, rank = ClusterRank();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      MBarrierInit(SharedAddress(&storage.full[stage]), 1);
      MBarrierInit(SharedAddress(&storage.empty[stage]), kClusterBlocks * kConsumers * 4);  // warps
    }
    MBarrierInitFence();
  }
  ClusterSync();  // both blocks' barriers are there
  if (warpgroup == 0) {
    LowerRegisters<kProducerRegisters>();
    if (threadIdx.x == 0) Produce(arguments, storage, rank);
    __syncwarp();
  } else {
    RaiseRegisters<kConsumerRegisters>();
    Consume(arguments, storage, rank, warpgroup - 1);
  }
  ClusterSync();  // the other block may still send to this one's memory
}

// Of a matrix [rows, columns], boxes of 128 bytes of so many rows.
cudaError_t MakeMap(DataType type, const void* matrix, std::int64_t rows, std::int64_t columns, int box_rows,
                    CUtensorMap& map) {
  const auto row_bytes = static_cast<std::uint64_t>(columns * ElementBytes(type));
  const std::uint64_t all_bytes = row_bytes * static_cast<std::uint64_t>(rows);
  return MakeTensorMap(
      {.data_type = type,
       .base = matrix,
       .extents = {static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(rows), 1, 1},
       .strides_bytes = {row_bytes, all_bytes, all_bytes},
       .box = {static_cast<std::uint32_t>(kRowBytes / ElementBytes(type)), static_cast<std::uint32_t>(box_rows), 1, 1}},
      map);
}

cudaError_t MakeMaps(const CudaGemmRungParams& params, Arguments& arguments) {
  const DataType type = DataType::kBFloat16;
  if (const cudaError_t error = MakeMap(type, params.a, params.m, params.k, kBoxRows, arguments.a); error != cudaSuccess)
    return error;
  if (const cudaError_t error = MakeMap(type, params.b_transposed, params.n, params.k, kBoxRows, arguments.b);
      error != cudaSuccess)
    return error;
  return MakeMap(DataType::kFloat32, params.c, params.m, params.n, kConsumerRows, arguments.c);
}

}  // namespace

CudaStatus LaunchWgmmaGemm(const CudaGemmRungParams& params, const CudaSite& site) {
  Arguments arguments = {};
  if (const cudaError_t error = MakeMaps(params, arguments); error != cudaSuccess) return error;
  arguments.num_steps = static_cast<int>(CeilDivide(params.k, kDepth));
  arguments.rows = static_cast<int>(CeilDivide(params.m, kClusterBlocks * kTileRows));
  arguments.columns = static_cast<int>(CeilDivide(params.n, kTileColumns));
  const int clusters = std::min(site.num_sms / kClusterBlocks, arguments.rows * arguments.columns);
  const LaunchShape shape = {.grid = dim3(clusters * kClusterBlocks),
                             .block = dim3(kThreads),
                             .shared_memory_bytes = static_cast<int>(sizeof(SharedStorage)),
                             .cluster_blocks = kClusterBlocks};
  return Launch(WgmmaGemmKernel, shape, site.stream, arguments);
}

}  // namespace ridgeline::kernels::microbench
