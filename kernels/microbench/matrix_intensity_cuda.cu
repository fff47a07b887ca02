// Products of a chosen intensity, by wgmma. A warp brings slabs one after the other, each to the ring of the warpgroup whose it
// is: two take turns with the groups.
//
//   gmem slabs ──bulk copy──► smem ring[warpgroup][stage] ──wgmma with A, again and again──► sums ──► one sum
//     producer warp             full[] / empty[]              two consumer warpgroups
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/bulk_copy.cuh"
#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/rounding.h"
#include "kernels/common/shared_memory.cuh"
#include "kernels/common/tensor_copy.cuh"
#include "kernels/microbench/block_sum.cuh"
#include "kernels/microbench/matrix_intensity.h"
#include "kernels/microbench/ring_place.cuh"
#include "kernels/microbench/wgmma_product.cuh"
#include "kernels/microbench/workload_cuda.h"

namespace ridgeline::kernels::microbench {
namespace {

constexpr int kStages = 3;
constexpr int kProducerWarp = 4 * kIntensityWarpgroups;
constexpr int kThreads = 32 * (kProducerWarp + 1);
constexpr int kFillThreads = 256;

// A warpgroup's slabs. With one ring for both, who runs ahead would take a stage's last round for the one it waits for.
struct Ring {
  alignas(1024) std::uint8_t slabs[kStages][kSlabBytes];
  std::uint64_t full[kStages];   // the slab has come
  std::uint64_t empty[kStages];  // the warpgroup's warps have read it
};

struct SharedStorage {
  Ring rings[kIntensityWarpgroups];
  alignas(1024) ProductRow a[kWgmmaRows];
  alignas(1024) ProductRow minus_a[kWgmmaRows];
};

// By one thread.
__device__ __forceinline__ void Produce(const MatrixIntensityParams& params, SharedStorage& storage, const SlabGroups& groups) {
  const auto* slab = static_cast<const std::uint8_t*>(params.slabs) + groups.begin * params.slabs_per_product * kSlabBytes;
  RingPlace<kStages> places[kIntensityWarpgroups];
  for (std::int64_t first = groups.begin; first < groups.end; first += kIntensityWarpgroups) {
#pragma unroll
    for (int warpgroup = 0; warpgroup < kIntensityWarpgroups; ++warpgroup) {
      if (first + warpgroup == groups.end) break;
      Ring& ring = storage.rings[warpgroup];
      RingPlace<kStages>& place = places[warpgroup];
      for (int i = 0; i < params.slabs_per_product; ++i, place.Advance(), slab += kSlabBytes) {
        const std::uint32_t full = SharedAddress(&ring.full[place.idx]);
        MBarrierWait(SharedAddress(&ring.empty[place.idx]), place.parity ^ 1);
        MBarrierArriveExpecting(full, kSlabBytes);
        BulkLoad(SharedAddress(ring.slabs[place.idx]), slab, kSlabBytes, full);
      }
    }
  }
}

// The other warpgroup's products fill the matrix unit while this one's are waited for.
template <typename T>
__device__ __forceinline__ void Multiply(SumOf<T> (&sums)[128], WgmmaOperand a, WgmmaOperand b, int times) {
  for (int i = 0; i < times; ++i) {
    WgmmaFence();
    AddProduct<T>(sums, a, b);
    WgmmaCommit();
    WgmmaWait<0>();
  }
}

__device__ __forceinline__ void Await(Ring& ring, const RingPlace<kStages>& place) {
  MBarrierWait(SharedAddress(&ring.full[place.idx]), place.parity);
}

// By each warp of the warpgroup.
__device__ __forceinline__ void Release(Ring& ring, const RingPlace<kStages>& place) {
  if (threadIdx.x % 32 == 0) MBarrierArrive(SharedAddress(&ring.empty[place.idx]));
}

// The sum over this thread's sums.
template <typename T>
__device__ __forceinline__ float Consume(const MatrixIntensityParams& params, SharedStorage& storage, const SlabGroups& groups,
                                         int warpgroup) {
  const WgmmaOperand a(SharedAddress(storage.a), 0), minus_a(SharedAddress(storage.minus_a), 0);
  Ring& ring = storage.rings[warpgroup];
  RingPlace<kStages> place;
  SumOf<T> sums[128] = {};
  for (std::int64_t group = groups.begin + warpgroup; group < groups.end; group += kIntensityWarpgroups) {
    Await(ring, place);
    const WgmmaOperand b(SharedAddress(ring.slabs[place.idx]), 0);
    Multiply<T>(sums, SlabGroupSign(groups, group) > 0 ? a : minus_a, b, params.products_per_slab);
    Release(ring, place);
    place.Advance();
    for (int i = 1; i < params.slabs_per_product; ++i, place.Advance()) {
      Await(ring, place);
      Release(ring, place);
    }
  }
  float total = 0;
#pragma unroll
  for (const SumOf<T>& sum : sums) total += static_cast<float>(sum);
  return total;
}

template <typename T>
__global__ void __launch_bounds__(kThreads, 1) MatrixIntensityKernel(const __grid_constant__ MatrixIntensityParams params) {
  extern __shared__ __align__(1024) std::uint8_t memory[];
  auto& storage = *reinterpret_cast<SharedStorage*>(memory);
  FillRows<T>(storage.a, kWgmmaRows, [](int) { return 1.0f; });
  FillRows<T>(storage.minus_a, kWgmmaRows, [](int) { return -1.0f; });
  if (threadIdx.x == 0) {
    for (Ring& ring : storage.rings) {
      for (int stage = 0; stage < kStages; ++stage) {
        MBarrierInit(SharedAddress(&ring.full[stage]), 1);
        MBarrierInit(SharedAddress(&ring.empty[stage]), 4);
      }
    }
    MBarrierInitFence();
  }
  SharedToAsyncFence();
  __syncthreads();
  const SlabGroups groups = SlabGroupsOf(params, blockIdx.x, gridDim.x);
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0);  // so that it is known to be a warp's
  float total = 0;
  if (warp < kProducerWarp) {
    total = Consume<T>(params, storage, groups, warp / 4);
  } else {
    if (threadIdx.x % 32 == 0) Produce(params, storage, groups);
    __syncwarp();
  }
  total = SumOfBlock(total);
  if (threadIdx.x == 0) params.slice_sums[blockIdx.x] = total;
}

template <typename T>
__global__ void __launch_bounds__(kFillThreads) FillSlabsKernel(const __grid_constant__ SlabPatternParams params) {
  constexpr std::int64_t kSlabWords = kSlabBytes / 4;
  auto* const words = static_cast<std::uint32_t*>(params.slabs);
  const std::int64_t num_words = params.num_slabs * kSlabWords, stride = std::int64_t{gridDim.x} * kFillThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kFillThreads + threadIdx.x; i < num_words; i += stride) {
    const auto value = static_cast<float>(SlabValue(i / kSlabWords));
    words[i] = PatternWord<T>(value, static_cast<int>(i % (kProductRowBytes / 4)) * 4);
  }
}

// Both kernels of a type.
struct Kernels {
  void (*multiply)(MatrixIntensityParams);
  void (*fill)(SlabPatternParams);
};

template <typename T>
constexpr Kernels kKernelsOf = {MatrixIntensityKernel<T>, FillSlabsKernel<T>};

Kernels ChooseKernels(MatrixType type) {
  switch (type) {
    case MatrixType::kTf32:
      return kKernelsOf<Tf32>;
    case MatrixType::kFloat16:
      return kKernelsOf<__half>;
    case MatrixType::kBFloat16:
      return kKernelsOf<__nv_bfloat16>;
    case MatrixType::kFloat8E4M3:
      return kKernelsOf<__nv_fp8_e4m3>;
    case MatrixType::kFloat8E5M2:
      return kKernelsOf<__nv_fp8_e5m2>;
    case MatrixType::kInt8:
      return kKernelsOf<std::int8_t>;
  }
  return {};
}

}  // namespace

CudaStatus LaunchOnCuda(const MatrixIntensityParams& params, const CudaSite& site) {
  const LaunchShape shape = {
      .grid = dim3(site.num_sms), .block = dim3(kThreads), .shared_memory_bytes = static_cast<int>(sizeof(SharedStorage))};
  return Launch(ChooseKernels(params.type).multiply, shape, site.stream, params);
}

CudaStatus LaunchOnCuda(const SlabPatternParams& params, const CudaSite& site) {
  constexpr int kBlocksOfSm = 8;
  const LaunchShape shape = {.grid = dim3(site.num_sms * kBlocksOfSm), .block = dim3(kFillThreads)};
  return Launch(ChooseKernels(params.type).fill, shape, site.stream, params);
}

}  // namespace ridgeline::kernels::microbench
