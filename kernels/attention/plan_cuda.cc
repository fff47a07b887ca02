#include <cstdint>
#include <optional>
#include <string>

#include "kernels/attention/decode/decode_plan_cuda.h"
#include "kernels/attention/flash/flash_plan_cuda.h"
#include "kernels/attention/plan.h"
#include "kernels/attention/score_bytes.h"
#include "kernels/attention/standard/standard_cuda.h"
#include "kernels/attention/visible_range.h"

namespace ridgeline::kernels::attention {

std::string WhyNotOnCuda(const AttentionShape& shape, const Sequence* sequences) {
  for (std::int64_t i = 0; i < shape.num_sequences; ++i) {
    const bool too_many_queries = sequences[i].query_tokens > kMaxIntTokens;
    if (!too_many_queries && sequences[i].key_tokens <= kMaxIntTokens) continue;
    return "sequence " + std::to_string(i) + " has " +
           std::to_string(too_many_queries ? sequences[i].query_tokens : sequences[i].key_tokens) +
           (too_many_queries ? " query" : " key") + " tokens; CUDA devices support up to " + std::to_string(kMaxIntTokens) +
           ", the CPU device any number";
  }
  return "";
}

AttentionPlan PlanOnCuda(const AttentionShape& shape, const Sequence* sequences, std::optional<Algorithm> requested,
                         const CudaLimits& limits) {
  AttentionPlan plan = {};
  plan.algorithm = requested.value_or(Algorithm::kFlash);
  plan.reason = requested.has_value() ? "the request names it" : NeedsNoScores(shape, sequences);
  if (plan.algorithm == Algorithm::kFlash && WhyNotDecode(shape, sequences, limits).empty()) {
    PlanDecodeOnCuda(shape, sequences, limits, plan);
  } else if (plan.algorithm == Algorithm::kFlash) {
    PlanFlashOnCuda(shape, sequences, limits, plan);
  } else {
    plan.kernel = "standard_cuda[cublas]";
    plan.workspace_bytes = StandardWorkspaceBytesOnCuda(shape, sequences);
  }
  return plan;
}

}  // namespace ridgeline::kernels::attention
