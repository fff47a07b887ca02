// kv_cache.h's work on CUDA devices: one launch each, queued on the stream.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/kv_cache/kv_cache.h"

namespace ridgeline::kernels::kv_cache {

cudaError_t LaunchAppend(const AppendParams& params, cudaStream_t stream);
cudaError_t LaunchGather(const GatherParams& params, cudaStream_t stream);
cudaError_t LaunchCopyPages(const CopyPagesParams& params, cudaStream_t stream);

}  // namespace ridgeline::kernels::kv_cache
