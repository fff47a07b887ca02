// Standard attention on CUDA devices: S = scale * Q·Kᵀ by cuBLAS, softmax over its rows, P·V by cuBLAS. README.md has the
// details.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

#include "kernels/attention/attention.h"
#include "kernels/attention/plan.h"
#include "kernels/common/cublas.h"
#include "kernels/common/cuda_status.h"

namespace ridgeline::kernels::attention {

// Called between the launches of two phases, to mark the end of the one that it names ("scores", "softmax", "values"): the
// caller records an event.
using PhaseEnd = std::function<cudaError_t(const char* phase)>;

// Bytes of S in float32 and P in the inputs' type (every sequence and query head), and of keys and values that lie in pages.
// Saturates at INT64_MAX.
std::int64_t StandardWorkspaceBytesOnCuda(const AttentionShape& shape, const Sequence* sequences);

// Queues the phases on the stream, which is the handle's. `host_sequences` is params.sequences in host memory, read before
// this returns. `phase_end` may be null.
CudaStatus LaunchStandard(const AttentionPlan& plan, const AttentionParams& params, const Sequence* host_sequences,
                          const Cublas& cublas, cudaStream_t stream, const PhaseEnd& phase_end);

}  // namespace ridgeline::kernels::attention
