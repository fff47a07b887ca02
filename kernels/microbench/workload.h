// Any one of the benchmarks' kernels, with its parameters: what a lane runs for the measuring instrument. Pointers are memory
// of the device that runs it; outputs are written whole. A device lacks some: workload_cuda.h has CUDA's.
#pragma once

#include <cstdint>
#include <type_traits>
#include <variant>

#include "kernels/common/executor.h"
#include "kernels/microbench/access_pattern.h"
#include "kernels/microbench/compute_peak.h"
#include "kernels/microbench/divergence.h"
#include "kernels/microbench/gemm_ladder.h"
#include "kernels/microbench/intensity.h"
#include "kernels/microbench/matrix_intensity.h"
#include "kernels/microbench/memory_hierarchy.h"
#include "kernels/microbench/mlp_backward.h"
#include "kernels/microbench/occupancy.h"
#include "kernels/microbench/product.h"
#include "kernels/microbench/softmax_passes.h"

namespace ridgeline::kernels::microbench {

// Nothing, by so many tasks: what it costs to hand work out.
struct EmptyParams {
  std::int64_t tasks;
};

inline void RunOnCpu(const EmptyParams& params, Executor& executor) {
  executor.ParallelFor(params.tasks, [](std::int64_t /*task*/, int /*slot*/) {});
}

using Workload =
    std::variant<EmptyParams, StreamParams, RegisterParams, LinkParams, ChaseParams, FmaParams, CudaFmaParams, MatrixPeakParams,
                 IntensityParams, MatrixIntensityParams, SlabPatternParams, StridedParams, VectorCopyParams, TransposeParams,
                 SoftmaxPassesParams, GemmRungParams, CudaGemmRungParams, ToFloat8Params, DivergenceParams, OccupancyParams,
                 ProductParams, GeluBackwardParams, LayerNormBackwardParams>;

template <typename Params>
concept HasCpuKernel = requires(const Params& params, Executor& executor) {
  RunOnCpu(params, executor);
};

inline bool RunsOnCpu(const Workload& workload) {
  return std::visit([](const auto& params) { return HasCpuKernel<std::decay_t<decltype(params)>>; }, workload);
}

// RunsOnCpu is true.
inline void RunWorkloadOnCpu(const Workload& workload, Executor& executor) {
  const auto run = [&](const auto& params) {
    if constexpr (HasCpuKernel<std::decay_t<decltype(params)>>) RunOnCpu(params, executor);
  };
  std::visit(run, workload);
}

}  // namespace ridgeline::kernels::microbench
