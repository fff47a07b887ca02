// The plan of the Hopper prefill kernel. Pure host code.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"

namespace ridgeline::kernels::attention {

// Why the kernel cannot compute the problem, or empty if it can.
std::string WhyNotPrefill(const AttentionShape& shape, const Sequence* sequences, const CudaLimits& limits);

// Whether it is also the one to choose: for tiles of many query rows, enough of them to keep the device busy. Only for what
// WhyNotPrefill is empty of.
bool PrefersPrefill(const AttentionShape& shape, const Sequence* sequences, const CudaLimits& limits);

// Fills prefill, kernel, query_block, key_block and merge_workspace_bytes of `plan`. Only for what WhyNotPrefill is empty of.
void PlanPrefillOnCuda(const AttentionShape& shape, const Sequence* sequences, const CudaLimits& limits, AttentionPlan& plan);

}  // namespace ridgeline::kernels::attention
