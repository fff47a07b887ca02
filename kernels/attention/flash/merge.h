// Merges what the splits of the keys left, by log-sum-exp.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/attention/flash/flash_arguments.h"

namespace ridgeline::kernels::attention {

// Rows of a tile of merge_schedule.
inline constexpr int kMergeTileRows = 4;

// Writes output and log_sum_exp; adds the sinks.
cudaError_t LaunchMerge(const FlashArguments& arguments, cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
