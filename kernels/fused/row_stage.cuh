// The next row's input on its way to shared memory while this one is worked on (sm_90 and newer): memory never waits for the
// statistic, however few rows an SM has at a time.
//
//   gmem row r+1 ──bulk copy──► smem stage ──► registers of row r+1 ──► statistic, result      gmem row r+2 ──bulk copy──► ...
//      one thread           full (mbarrier)        taken (__syncthreads)
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/bulk_copy.cuh"
#include "kernels/common/bulk_prefetch.cuh"
#include "kernels/common/cluster.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/fused/row_part.cuh"

namespace ridgeline::kernels::fused {

extern __shared__ uint4 smem_row_stage[];  // a block's part of a row of input, then of residual

template <typename T, bool kHasOther>
class RowStage {
 public:
  __device__ explicit RowStage(const RowArguments& arguments) : arguments_(arguments) {}

  // Queues the block's part of the first row.
  __device__ __forceinline__ void Start([[maybe_unused]] std::int64_t first_row) {
#if __CUDA_ARCH__ >= 900
    __shared__ std::uint64_t smem_full;
    full_ = static_cast<std::uint32_t>(__cvta_generic_to_shared(&smem_full));
    if (threadIdx.x == 0) {
      MBarrierInit(full_, 1);
      MBarrierInitFence();
    }
    __syncthreads();
    Queue(first_row);
#endif
  }

  // Takes the queued row, with its residual, whose sum it writes; then queues `next_row`.
  template <RowAccess kAccess>
  __device__ __forceinline__ void Take([[maybe_unused]] const RowPart<T, kAccess>& part, [[maybe_unused]] std::int64_t next_row,
                                       [[maybe_unused]] float outside, [[maybe_unused]] Held<T>& held) {
#if __CUDA_ARCH__ >= 900
    MBarrierWait(full_, phase_);
    phase_ ^= 1;
    Held<T> addends;
    TakeWords(part, smem_row_stage, outside, held);
    if (kHasOther) TakeWords(part, smem_row_stage + BlockWords(), 0, addends);
    __syncthreads();
    Queue(next_row);
    if (kHasOther) AddResidual(arguments_, part, 0, /*is_first_time=*/true, addends, held);
#endif
  }

 private:
  static __device__ __forceinline__ int BlockElems() { return static_cast<int>(blockDim.x) * kThreadElems; }
  static __device__ __forceinline__ int BlockWords() { return static_cast<int>(blockDim.x) * kHeldWords<T>; }
  __device__ __forceinline__ int BlockBegin() const { return arguments_.cluster_blocks > 1 ? ClusterRank() * BlockElems() : 0; }

  template <RowAccess kAccess>
  __device__ __forceinline__ void TakeWords(const RowPart<T, kAccess>& part, const uint4* stage, float outside,
                                            Held<T>& held) const {
    const int begin = BlockBegin();
#pragma unroll
    for (int v = 0; v < kHeldWords<T>; ++v) {
      const int column = part.Column(arguments_, 0, v);
      if (part.HasAny(column)) {
        held[v].bits = stage[(column - begin) / kVectorElems<T>];
      } else {
        held[v] = Vector<T>::Filled(outside);
      }
    }
  }

  __device__ __forceinline__ void Queue([[maybe_unused]] std::int64_t row) {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x != 0 || row >= arguments_.num_rows) return;
    const int begin = BlockBegin();
    const int elems = max(min(arguments_.row_elems - begin, BlockElems()), 0);
    const auto size_bytes = static_cast<std::uint32_t>(elems * sizeof(T));
    MBarrierArriveExpecting(full_, kHasOther ? 2 * size_bytes : size_bytes);
    if (size_bytes == 0) return;
    const std::int64_t first = row * arguments_.row_elems + begin;
    const auto stage = static_cast<std::uint32_t>(__cvta_generic_to_shared(smem_row_stage));
    const T* const input = static_cast<const T*>(arguments_.input) + first;
    BulkLoad(stage, input, size_bytes, full_);
    if constexpr (kHasOther) {
      const auto second = stage + static_cast<std::uint32_t>(BlockWords() * sizeof(uint4));
      BulkLoad(second, static_cast<const T*>(arguments_.other) + first, size_bytes, full_);
    } else {
      // The row after it waits in the L2 cache, which has no room for those of two tensors beside the results.
      const std::int64_t step = arguments_.cluster_blocks > 1 ? NumClusters() : gridDim.x;
      if (row + step < arguments_.num_rows) BulkPrefetch(input + step * arguments_.row_elems, size_bytes);
    }
#endif
  }

  const RowArguments& arguments_;
  std::uint32_t full_ = 0;
  std::uint32_t phase_ = 0;
};

}  // namespace ridgeline::kernels::fused
