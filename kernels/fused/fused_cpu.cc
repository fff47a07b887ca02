#include "kernels/fused/fused_cpu.h"

#include "kernels/common/executor.h"
#include "kernels/fused/op_info.h"
#include "kernels/fused/steps.h"

namespace ridgeline::kernels::fused {

void RunFusedOnCpu(const FusedParams& params, Mode mode, Executor& executor) {
  if (params.shape.num_rows == 0) return;
  if (mode == Mode::kUnfused) {
    for (const Step& step : UnfusedChain(params.shape).steps) {
      if (executor.cancelled()) return;
      RunStepOnCpu(params, step, executor);
    }
    return;
  }
  const OpInfo& info = InfoOf(params.shape.op);
  if (info.has_rope) return RunRopeOnCpu(params, executor);
  if (info.reduces_rows) return RunRowsOnCpu(params, executor);
  RunPointwiseOnCpu(params, executor);
}

}  // namespace ridgeline::kernels::fused
