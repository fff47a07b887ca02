// Decode attention on CUDA devices, over pages and dense: sequences with few queries, so that a KV head's rows (query tokens *
// Hq/Hkv) fit 16.
//
// One launch, of as many blocks as the device has multiprocessors. Where a sequence is cut over blocks, one of them polls for
// what the others leave in params.merge_workspace (see decode_block_merge.cuh):
//
//   - The workspace belongs to one stream of launches, and is all ones before the first. A launch that ran leaves it so. After
//     one that failed, or whose completion nobody saw, it is filled again.
//   - A block waits only for blocks of lower numbers, and only when its own work is done. Blocks are dispatched in the order of
//     their numbers, so those are done or running, and the lowest of them waits for nobody: kernels of other streams that
//     take part of the device make a launch slower, and cannot stop it.
//   - Whatever keys and values hold, NaN and Inf too, what a block leaves never looks as if it had not come.
//
// Nothing depends on the host: lengths, pages and block tables may change between replays of a captured launch, as long as the
// query tokens of a sequence stay within the plan's.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"

namespace ridgeline::kernels::attention {

// Queues the kernel of a plan whose decode.num_blocks > 0 on `stream`.
cudaError_t LaunchDecode(const AttentionPlan& plan, const AttentionParams& params, cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
