// The plan of decode on CUDA devices. Pure host code.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"

namespace ridgeline::kernels::attention {

// Empty if the decode kernel can compute the problem, else why not, e.g. "64 packed rows of a KV head; decode takes 16". Of
// `sequences` only query_tokens count.
std::string WhyNotDecode(const AttentionShape& shape, const Sequence* sequences, const CudaLimits& limits);

// Fills decode, kernel, query_block, key_block and merge_workspace_bytes of `plan`. Only for what WhyNotDecode is empty of. Of
// `sequences` only query_tokens count: key_tokens and pages may change between launches of one plan.
void PlanDecodeOnCuda(const AttentionShape& shape, const Sequence* sequences, const CudaLimits& limits, AttentionPlan& plan);

// What merge_workspace needs for any plan on the device.
std::int64_t MostMergeWorkspaceBytes(const CudaLimits& limits);

}  // namespace ridgeline::kernels::attention
