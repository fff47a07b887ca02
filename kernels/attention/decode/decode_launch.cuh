// The definition behind decode_launch.h, for the files of inst/.
#pragma once

#include "kernels/attention/decode/decode_kernel.cuh"
#include "kernels/attention/decode/decode_launch.h"
#include "kernels/attention/decode/decode_shape.h"
#include "kernels/common/cuda_launch.cuh"

namespace ridgeline::kernels::attention {

template <typename T, int kHeadDim, int kRowMmas, bool kHasOptions>
cudaError_t LaunchDecodeKernel(const DecodeArguments& arguments, cudaStream_t stream) {
  const DecodeSchedule& schedule = arguments.schedule;
  const int num_warps = 1 << schedule.warps_log2;
  const LaunchShape launch = {.grid = dim3(static_cast<unsigned>(schedule.num_blocks)),
                              .block = dim3(static_cast<unsigned>(32 * num_warps)),
                              .shared_memory_bytes = DecodeSharedBytes(kHeadDim, num_warps, schedule.rows)};
  return Launch(DecodeKernel<DecodeTraits<T, kHeadDim, kRowMmas, kHasOptions>>, launch, stream, arguments);
}

}  // namespace ridgeline::kernels::attention
