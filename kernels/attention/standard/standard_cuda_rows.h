// The row-wise work of standard attention on CUDA devices, between and after its matrix products.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/attention/attention.h"
#include "kernels/attention/standard/standard_cuda_layout.h"

namespace ridgeline::kernels::attention {

// Fills every row of a run's P from its row of S, and its log_sum_exp, the sink included. `scores` and `probabilities` are
// those of the run's first sequence; they are the same memory for float32.
cudaError_t LaunchSoftmax(const AttentionParams& params, const SequenceRun& run, const float* scores, void* probabilities,
                          cudaStream_t stream);

// Completes the run's output, given `product` = P·V of its first sequence, ProductType: in the output itself, or apart
// [count, Sq, Hq, Dv] if the output is of another type. params.value has the values in one stretch, gathered if need be. Rows
// with anything not finite are computed again without hidden keys: the product has multiplied those too, by 0, and that is not
// 0 where the value is infinite or NaN. Without keys nothing is read and the rows are 0.
cudaError_t LaunchFinishOutput(const AttentionParams& params, const SequenceRun& run, const void* probabilities,
                               const void* product, cudaStream_t stream);

}  // namespace ridgeline::kernels::attention
