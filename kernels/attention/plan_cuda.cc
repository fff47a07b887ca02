#include <cstdint>
#include <optional>
#include <string>

#include "kernels/attention/decode/decode_plan_cuda.h"
#include "kernels/attention/flash/flash_plan_cuda.h"
#include "kernels/attention/plan.h"
#include "kernels/attention/prefill_sm90/prefill_plan_cuda.h"
#include "kernels/attention/score_bytes.h"
#include "kernels/attention/standard/standard_cuda.h"
#include "kernels/attention/visible_range.h"

namespace ridgeline::kernels::attention {

namespace {

// Kernels count the tokens of all keys together in 32 bits where they gather them.
constexpr std::int64_t kMostKeyTokens = std::int64_t{1} << 32;

std::string TooMany(std::int64_t sequence_idx, std::int64_t tokens, const char* what, std::int64_t most) {
  return "sequence " + std::to_string(sequence_idx) + " has " + std::to_string(tokens) + " " + what +
         "; CUDA devices support up to " + std::to_string(most) + ", the CPU device any number";
}

}  // namespace

std::string WhyNotOnCuda(const AttentionShape& shape, const Sequence* sequences) {
  for (std::int64_t i = 0; i < shape.num_sequences; ++i) {
    const std::int64_t query_tokens = sequences[i].query_tokens, key_tokens = sequences[i].key_tokens;
    const std::int64_t key_begin = sequences[i].key_begin;
    if (query_tokens > kMaxIntTokens) return TooMany(i, query_tokens, "query tokens", kMaxIntTokens);
    if (key_tokens > kMaxIntTokens) return TooMany(i, key_tokens, "key tokens", kMaxIntTokens);
    if (shape.IsPaged() || key_begin <= kMostKeyTokens - key_tokens) continue;
    return TooMany(i, key_begin + key_tokens, "key tokens in the batch up to its end", kMostKeyTokens);
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
  } else if (plan.algorithm == Algorithm::kFlash && WhyNotPrefill(shape, sequences, limits).empty() &&
             PrefersPrefill(shape, sequences, limits)) {
    PlanPrefillOnCuda(shape, sequences, limits, plan);
  } else if (plan.algorithm == Algorithm::kFlash) {
    PlanFlashOnCuda(shape, sequences, limits, plan);
  } else {
    plan.kernel = "standard_cuda[cublas]";
    plan.workspace_bytes = StandardWorkspaceBytesOnCuda(shape, sequences);
  }
  return plan;
}

}  // namespace ridgeline::kernels::attention
