#include <optional>

#include "kernels/attention/flash/flash.h"
#include "kernels/attention/plan.h"
#include "kernels/attention/score_bytes.h"
#include "kernels/attention/standard/standard.h"

namespace ridgeline::kernels::attention {

AttentionPlan PlanOnCpu(const AttentionShape& shape, const Sequence* sequences, std::optional<Algorithm> requested,
                        const CpuLimits& limits) {
  AttentionPlan plan = {};
  // Flash wherever the planner may choose. It was faster on every shape measured with the code that OpenBLAS 0.3.21 picks on
  // our machines, and where a faster sgemm overtakes it, S still costs the memory; standard/README.md has both measurements.
  plan.algorithm = requested.value_or(Algorithm::kFlash);
  plan.reason = requested.has_value() ? "the request names it" : NeedsNoScores(shape, sequences);
  if (plan.algorithm == Algorithm::kFlash) {
    PlanFlashOnCpu(shape, sequences, limits, plan);
  } else {
    plan.kernel = "standard_cpu[openblas]";
    plan.workspace_bytes = StandardWorkspaceBytes(shape, sequences);
  }
  return plan;
}

}  // namespace ridgeline::kernels::attention
