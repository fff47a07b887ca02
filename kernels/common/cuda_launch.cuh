// Launches a kernel and checks the launch.
#pragma once

#include <cuda_runtime.h>

#include <utility>

namespace ridgeline::kernels {

struct LaunchShape {
  dim3 grid;
  dim3 block;
  int shared_memory_bytes = 0;  // dynamic
  int cluster_blocks = 1;       // of the grid's width, which is a multiple of it; more than one needs sm_90
};

// Raises the kernel's limit of dynamic shared memory where a launch needs more than every device grants unasked. A grid of no
// blocks launches nothing.
template <typename... Parameters, typename... Arguments>
cudaError_t Launch(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream, Arguments&&... arguments) {
  constexpr int kGrantedUnasked = 48 << 10;
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return cudaSuccess;
  if (shape.shared_memory_bytes > kGrantedUnasked) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shape.shared_memory_bytes);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = static_cast<std::size_t>(shape.shared_memory_bytes);
  config.stream = stream;
  cudaLaunchAttribute cluster = {};
  if (shape.cluster_blocks > 1) {
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {static_cast<unsigned>(shape.cluster_blocks), 1, 1};
    config.attrs = &cluster;
    config.numAttrs = 1;
  }
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

}  // namespace ridgeline::kernels
