// Ping-pong: warpgroups issue their products in turn, so that the softmax of one runs under the products of the others. All
// take the same number of turns.
#pragma once

#include <cuda_runtime.h>

#include "kernels/common/named_barrier.cuh"

namespace ridgeline::kernels::attention {

template <int kGroups>
class WarpgroupTurns {
 public:
  __device__ __forceinline__ explicit WarpgroupTurns(int group) : group_(group) {}

  // Once, before the first turn, which is group 0's.
  __device__ __forceinline__ void Begin() const {
    if (group_ == kGroups - 1) NamedBarrierArrive(kFirstBarrier, kThreads);
  }
  __device__ __forceinline__ void Await() const { NamedBarrierSync(kFirstBarrier + group_, kThreads); }
  // In the last round the last group passes the turn to nobody.
  __device__ __forceinline__ void Pass(bool is_last_round = false) const {
    const int next = group_ + 1 == kGroups ? 0 : group_ + 1;
    if (is_last_round && next == 0) return;
    NamedBarrierArrive(kFirstBarrier + next, kThreads);
  }

 private:
  static constexpr int kFirstBarrier = 1;  // __syncthreads has 0
  static constexpr int kThreads = 2 * 128;

  const int group_;
};

}  // namespace ridgeline::kernels::attention
