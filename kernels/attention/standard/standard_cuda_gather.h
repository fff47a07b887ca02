// Standard attention reads keys and values in one stretch: what lies in pages is copied out of them first.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/attention/attention.h"
#include "kernels/attention/standard/standard_cuda_layout.h"

namespace ridgeline::kernels::attention {

// Copies a run's keys and values from their pages to tokens [run.first_key_token, + count * Sk) of `key` [tokens, Hkv, D] and
// `value` [tokens, Hkv, Dv].
cudaError_t LaunchGatherRun(const AttentionParams& params, const SequenceRun& run, void* key, void* value, cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
