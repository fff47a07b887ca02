// Any one of the benchmarks' kernels, with its parameters: what a lane runs for the measuring instrument. Pointers are memory
// of the device that runs it; outputs are written whole.
#pragma once

#include <cstdint>
#include <variant>

#include "kernels/common/executor.h"
#include "kernels/microbench/access_pattern.h"
#include "kernels/microbench/compute_peak.h"
#include "kernels/microbench/gemm_ladder.h"
#include "kernels/microbench/intensity.h"
#include "kernels/microbench/memory_hierarchy.h"
#include "kernels/microbench/softmax_passes.h"

namespace ridgeline::kernels::microbench {

// Nothing, by so many tasks: what it costs to hand work out.
struct EmptyParams {
  std::int64_t tasks;
};

inline void RunOnCpu(const EmptyParams& params, Executor& executor) {
  executor.ParallelFor(params.tasks, [](std::int64_t /*task*/, int /*slot*/) {});
}

using Workload = std::variant<EmptyParams, StreamParams, ChaseParams, FmaParams, IntensityParams, StridedParams,
                              VectorCopyParams, TransposeParams, SoftmaxPassesParams, GemmRungParams>;

inline void RunOnCpu(const Workload& workload, Executor& executor) {
  std::visit([&](const auto& params) { RunOnCpu(params, executor); }, workload);
}

}  // namespace ridgeline::kernels::microbench
