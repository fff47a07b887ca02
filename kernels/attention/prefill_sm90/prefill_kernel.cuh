// Flash attention for Hopper. README.md explains mathematics, schedule and sizes.
//
//   warpgroup 0, few registers     warp 0    loads K, V:            gmem ──tensor copy──► smem            RingLoader
//                                  warp 1    stores O:              smem ──tensor copy──► gmem            OutputStorer
//                                  warp 2    takes tiles, loads Q:  gmem ──tensor copy──► smem            TileFinder
//   warpgroups 1 to 2, 3 or 4      compute:  S = Q·Kᵀ, P = softmax, O += P·V, 64 rows each                GroupAttention
//
//   tile_wanted          loader ──► finder   the end of the tile that is being loaded is near
//   tile_known[buffer]   finder ──► loader   what the next tile is; no rows: there are no more
//   query_full[buffer]   finder ──► all      the same, and its queries
//   output_full[buffer]  consumers ──► storer
//   query_empty[buffer]  storer ──► finder
//   ring_full[stage]     loader ──► consumers
//   ring_empty[stage]    consumers ──► loader
#pragma once

#include <cuda_runtime.h>

#include "kernels/attention/prefill_sm90/prefill_arguments.h"
#include "kernels/attention/prefill_sm90/prefill_load.cuh"
#include "kernels/attention/prefill_sm90/prefill_rows.cuh"
#include "kernels/attention/prefill_sm90/prefill_store.cuh"
#include "kernels/attention/prefill_sm90/prefill_tile.cuh"
#include "kernels/attention/prefill_sm90/prefill_traits.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/register_budget.cuh"
#include "kernels/common/tensor_copy.cuh"

namespace ridgeline::kernels::attention {

template <typename Traits>
__device__ __forceinline__ void InitBarriers(typename Traits::SharedStorage& shared) {
  constexpr int kConsumerWarps = 4 * Traits::kConsumers;
  MBarrierInit(BarrierAt(shared.tile_wanted, 0), 1);
  for (int i = 0; i < Traits::kQueryBuffers; ++i) {
    MBarrierInit(BarrierAt(shared.tile_known, i), 1);
    MBarrierInit(BarrierAt(shared.query_full, i), 1);
    MBarrierInit(BarrierAt(shared.output_full, i), kConsumerWarps);
    MBarrierInit(BarrierAt(shared.query_empty, i), 1);
  }
  for (int i = 0; i < Traits::kStages; ++i) {
    MBarrierInit(BarrierAt(shared.ring_full, i), 1);
    MBarrierInit(BarrierAt(shared.ring_empty, i), kConsumerWarps);
  }
  MBarrierInitFence();
}

template <typename Traits>
__global__ void __launch_bounds__(Traits::kThreads, 1) PrefillKernel(const __grid_constant__ PrefillArguments arguments) {
  extern __shared__ __align__(1024) char shared_bytes[];
  auto& shared = *reinterpret_cast<typename Traits::SharedStorage*>(shared_bytes);
  const int group = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / Traits::kGroupThreads, 0);
  if (threadIdx.x == 0) {
    InitBarriers<Traits>(shared);
    PrefetchTensorMap(&arguments.query);
    PrefetchTensorMap(&arguments.key);
    PrefetchTensorMap(&arguments.value);
  }
  __syncthreads();
  if (group == 0) {
    LowerRegisters<Traits::kProducerRegisters>();
    if (threadIdx.x < 32) {
      RingLoader<Traits>(arguments, shared).Run();
    } else if (threadIdx.x == 32) {
      OutputStorer<Traits>(arguments, shared).Run();
    } else if (threadIdx.x / 32 == 2) {
      TileFinder<Traits>(arguments, shared).Run();
    }
  } else {
    RaiseRegisters<Traits::kConsumerRegisters>();
    GroupAttention<Traits>(arguments, shared, group - 1).Run();
  }
}

}  // namespace ridgeline::kernels::attention
