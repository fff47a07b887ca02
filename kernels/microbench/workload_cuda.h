// workload.h's work on CUDA devices. An overload of LaunchOnCuda is all that a workload needs to run there.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>
#include <variant>

#include "kernels/common/cublas.h"
#include "kernels/common/cuda_status.h"
#include "kernels/microbench/workload.h"

namespace ridgeline::kernels::microbench {

// Where work is launched.
struct CudaSite {
  int num_sms;             // also the slots of a workload's results: one for each multiprocessor
  int compute_capability;  // major * 10 + minor
  const Cublas& cublas;    // bound to the stream
  cudaStream_t stream;
};

CudaStatus LaunchOnCuda(const EmptyParams& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const StreamParams& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const RegisterParams& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const LinkParams& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const ChaseParams& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const CudaFmaParams& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const MatrixPeakParams& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const IntensityParams& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const MatrixIntensityParams& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const SlabPatternParams& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const StridedParams& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const VectorCopyParams& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const TransposeParams& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const SoftmaxPassesParams& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const CudaGemmRungParams& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const ToFloat8Params& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const DivergenceParams& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const OccupancyParams& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const ProductParams& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const GeluBackwardParams& params, const CudaSite& site);
CudaStatus LaunchOnCuda(const LayerNormBackwardParams& params, const CudaSite& site);

template <typename Params>
concept HasCudaKernel = requires(const Params& params, const CudaSite& site) {
  LaunchOnCuda(params, site);
};

inline bool RunsOnCuda(const Workload& workload) {
  return std::visit([](const auto& params) { return HasCudaKernel<std::decay_t<decltype(params)>>; }, workload);
}

// RunsOnCuda is true. Queues the work, and returns the first error of a launch.
inline CudaStatus LaunchWorkload(const Workload& workload, const CudaSite& site) {
  const auto launch = [&](const auto& params) -> CudaStatus {
    if constexpr (HasCudaKernel<std::decay_t<decltype(params)>>) {
      return LaunchOnCuda(params, site);
    } else {
      return cudaErrorNotSupported;
    }
  };
  return std::visit(launch, workload);
}

}  // namespace ridgeline::kernels::microbench
