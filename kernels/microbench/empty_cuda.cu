#include <cuda_runtime.h>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/microbench/workload_cuda.h"

namespace ridgeline::kernels::microbench {
namespace {

__global__ void EmptyKernel() {}

}  // namespace

// A task is a block of one warp.
CudaStatus LaunchOnCuda(const EmptyParams& params, const CudaSite& site) {
  return Launch(EmptyKernel, {.grid = dim3(static_cast<unsigned>(params.tasks)), .block = dim3(32)}, site.stream);
}

}  // namespace ridgeline::kernels::microbench
