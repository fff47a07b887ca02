// The threads that share a row, and how their parts of its statistic become one.
//
//   warp ──shared memory──► block ──shared memory of the cluster──► cluster
//
// Every thread ends with the whole row's, the same to the bit.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cluster.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/fused/row_statistics.cuh"

namespace ridgeline::kernels::fused {

inline constexpr int kMostWarps = 32;
inline constexpr int kMostFields = 3;  // of a statistic
inline constexpr int kMostClusterBlocks = 8;

// Merges the parts of a team's warps. Two sets of slots take turns: who writes the next merge's parts has seen everybody arrive
// at this one's, after which nobody reads the one before.
class Team {
 public:
  struct Slots {
    float warps[2][kMostWarps][kMostFields];
    float4 blocks[2][kMostClusterBlocks];
    std::uint64_t full[2];  // barriers of `blocks`
  };

  __device__ Team(Slots& slots, int cluster_blocks) : slots_(slots), cluster_blocks_(cluster_blocks) {
#if __CUDA_ARCH__ >= 900
    if (cluster_blocks_ == 1) return;
    if (threadIdx.x == 0) {
      for (std::uint64_t& barrier : slots_.full) MBarrierInit(SharedAddress(&barrier), 1);
      MBarrierInitFence();
    }
    ClusterSync();  // all blocks are there before the first writes to another's memory
#endif
  }

  // `part`: of the warp, or of the team where it is narrower.
  template <typename Statistic>
  __device__ __forceinline__ Statistic Merge(const Statistic& part) {
    static_assert(Statistic::kFields <= kMostFields, "Slots are as large as the largest statistic.");
    const int threads = static_cast<int>(blockDim.x);
    if (threads <= kWarpThreads) return part;
    turn_ ^= 1;
    const int lane = static_cast<int>(threadIdx.x % kWarpThreads);
    if (lane == 0) {
#pragma unroll
      for (int i = 0; i < Statistic::kFields; ++i) slots_.warps[turn_][threadIdx.x / kWarpThreads][i] = part.fields[i];
    }
    __syncthreads();
    const int num_warps = threads / kWarpThreads, lanes = LanesFor(num_warps), slot = lane & (lanes - 1);
    Statistic block;
    if (slot < num_warps) {
#pragma unroll
      for (int i = 0; i < Statistic::kFields; ++i) block.fields[i] = slots_.warps[turn_][slot][i];
    }
    block = block.MergedOver(lanes);
    return cluster_blocks_ == 1 ? block : MergeBlocks(block);
  }

 private:
  static __device__ __forceinline__ std::uint32_t SharedAddress(const void* shared) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  }

  // The least power of two that is no less. Lanes take slots in turn, over and over, so that as few exchanges as there are
  // slots give every lane the result.
  static __device__ __forceinline__ int LanesFor(int slots) { return slots > 1 ? 1 << (kWarpThreads - __clz(slots - 1)) : 1; }

  template <typename Statistic>
  __device__ __forceinline__ Statistic MergeBlocks(const Statistic& block) {
    Statistic part;
#if __CUDA_ARCH__ >= 900
    const std::uint32_t full = SharedAddress(&slots_.full[turn_]);
    if (threadIdx.x == 0) MBarrierArriveExpecting(full, static_cast<std::uint32_t>(cluster_blocks_ * sizeof(float4)));
    if (static_cast<int>(threadIdx.x) < cluster_blocks_) {
      float values[4] = {};
#pragma unroll
      for (int i = 0; i < Statistic::kFields; ++i) values[i] = block.fields[i];
      StoreInCluster(SharedAddress(&slots_.blocks[turn_][ClusterRank()]), full, static_cast<int>(threadIdx.x),
                     {values[0], values[1], values[2], values[3]});
    }
    // Each barrier is waited for at every second merge.
    MBarrierWait(full, parity_);
    if (turn_ == 0) parity_ ^= 1;
    const int slot = static_cast<int>(threadIdx.x) & (LanesFor(cluster_blocks_) - 1);
    const float4 read = slots_.blocks[turn_][slot];
    const float values[4] = {read.x, read.y, read.z, read.w};
#pragma unroll
    for (int i = 0; i < Statistic::kFields; ++i) part.fields[i] = values[i];
#endif
    return part.MergedOver(LanesFor(cluster_blocks_));
  }

  Slots& slots_;
  const int cluster_blocks_;  // known to the compiler where it is 1 for all rows
  int turn_ = 0;
  std::uint32_t parity_ = 0;
};

}  // namespace ridgeline::kernels::fused
