#include "kernels/attention/flash/float32_kernel.cuh"
#include "kernels/attention/flash/float32_launch.h"
#include "kernels/attention/flash/float32_shape.h"
#include "kernels/common/cuda_launch.cuh"

namespace ridgeline::kernels::attention {

template <int kHeadDim>
cudaError_t LaunchFloat32(const FlashArguments& arguments, cudaStream_t stream) {
  constexpr Float32Shape kShape = Float32ShapeOf(kHeadDim);
  using Traits = Float32Traits<kHeadDim, kShape.tile_rows, kShape.tile_keys>;
  const LaunchShape launch = {.grid = dim3(static_cast<unsigned>(arguments.schedule.NumBlocks())),
                              .block = dim3(Traits::kThreads),
                              .shared_memory_bytes = sizeof(typename Traits::SharedStorage)};
  return Launch(Float32AttentionKernel<Traits>, launch, stream, arguments);
}

template cudaError_t LaunchFloat32<64>(const FlashArguments& arguments, cudaStream_t stream);
template cudaError_t LaunchFloat32<128>(const FlashArguments& arguments, cudaStream_t stream);
template cudaError_t LaunchFloat32<256>(const FlashArguments& arguments, cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
