// Attention of many queries on Hopper chips: bulk tensor copies, warpgroup products, specialised warps. README.md explains it.
//
// params.merge_workspace holds the number of the next tile, which belongs to one stream of launches and is all ones before the
// first. A launch that ran leaves it so; after one that failed it is filled again.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"

namespace ridgeline::kernels::attention {

// Queues the kernel of a plan whose prefill.num_tiles > 0 on `stream`.
cudaError_t LaunchPrefill(const AttentionPlan& plan, const AttentionParams& params, cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
