#include <optional>

#include "kernels/attention/flash/flash_plan_cuda.h"
#include "kernels/attention/plan.h"
#include "kernels/attention/score_bytes.h"
#include "kernels/attention/standard/standard_cuda.h"

namespace ridgeline::kernels::attention {

AttentionPlan PlanOnCuda(const AttentionShape& shape, const Sequence* sequences, std::optional<Algorithm> requested,
                         const CudaLimits& limits) {
  AttentionPlan plan = {};
  plan.algorithm = requested.value_or(Algorithm::kFlash);
  plan.reason = requested.has_value() ? "the request names it" : NeedsNoScores(shape, sequences);
  if (plan.algorithm == Algorithm::kFlash) {
    PlanFlashOnCuda(shape, sequences, limits, plan);
  } else {
    plan.kernel = "standard_cuda[cublas]";
    plan.workspace_bytes = StandardWorkspaceBytesOnCuda(shape, sequences);
  }
  return plan;
}

}  // namespace ridgeline::kernels::attention
