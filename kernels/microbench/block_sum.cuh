// A sum over the threads of a block.
#pragma once

#include <cuda_runtime.h>

namespace ridgeline::kernels::microbench {

// Of all threads, which are whole warps, at most 32; thread 0 has it. Ends with the block's other threads still under way.
__device__ __forceinline__ float SumOfBlock(float value) {
  constexpr unsigned kAllLanes = 0xffffffff;
  __shared__ float warp_sums[32];
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x >= 32) return 0;
  value = threadIdx.x < blockDim.x / 32 ? warp_sums[threadIdx.x] : 0;
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}

}  // namespace ridgeline::kernels::microbench
