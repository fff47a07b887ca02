// The definition behind mma_launch.h, for the files of inst/.
#pragma once

#include "kernels/attention/flash/mma_kernel.cuh"
#include "kernels/attention/flash/mma_launch.h"
#include "kernels/attention/flash/mma_shape.h"
#include "kernels/common/cuda_launch.cuh"

namespace ridgeline::kernels::attention {

template <typename T, int kHeadDim, bool kHasLogitOptions>
cudaError_t LaunchMma(const FlashArguments& arguments, cudaStream_t stream) {
  constexpr MmaShape kShape = MmaShapeOf(kHeadDim);
  using Traits = MmaTraits<T, kHeadDim, kShape.tile_rows, kShape.tile_keys, kHasLogitOptions>;
  const LaunchShape launch = {.grid = dim3(static_cast<unsigned>(arguments.schedule.NumBlocks())),
                              .block = dim3(Traits::kThreads),
                              .shared_memory_bytes = sizeof(typename Traits::SharedStorage)};
  return Launch(MmaAttentionKernel<Traits>, launch, stream, arguments);
}

}  // namespace ridgeline::kernels::attention
