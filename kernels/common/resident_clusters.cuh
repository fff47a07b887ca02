// How many clusters a device runs at a time (sm_90): for kernels whose blocks stay and share the work out among them, where a
// cluster that comes after the others have ended takes as long as all of them did.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>

#include "kernels/common/cuda_launch.cuh"

namespace ridgeline::kernels {

// Cuts the grid down to them. It is fewer than the number of SMs would have it where a cluster's blocks are no divisor of the
// SMs that lie together.
template <typename... Parameters>
cudaError_t KeepResidentClusters(void (*kernel)(Parameters...), LaunchShape& shape) {
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shape.shared_memory_bytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(shape.cluster_blocks), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = static_cast<std::size_t>(shape.shared_memory_bytes);
  config.attrs = &cluster;
  config.numAttrs = 1;
  int num_clusters = 0;
  error = cudaOccupancyMaxActiveClusters(&num_clusters, kernel, &config);
  if (error != cudaSuccess) return error;
  shape.grid.x = std::min(shape.grid.x, static_cast<unsigned>(std::max(num_clusters, 1) * shape.cluster_blocks));
  return cudaSuccess;
}

}  // namespace ridgeline::kernels
