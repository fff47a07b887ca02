// The two matrix products of standard attention on CUDA devices, by cuBLAS.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/standard/standard_cuda_layout.h"
#include "kernels/common/cublas.h"

namespace ridgeline::kernels::attention {

// Where a run's matrices lie in device memory.
struct RunMatrices {
  const void* query;                   // token `query_begin` of its first sequence
  const void* key;                     // likewise
  const void* value;                   // likewise
  float* scores;                       // S of its first sequence
  void* probabilities;                 // P, likewise
  void* product;                       // P·V, ProductType: in the output or in the workspace
  std::int64_t product_stride_tokens;  // from one sequence's first row of the product to the next one's
};

// S = Q·Kᵀ, unscaled: the scale is the softmax's, in float32.
cublasStatus_t MultiplyQueryKey(const AttentionShape& shape, const SequenceRun& run, const RunMatrices& matrices,
                                const Cublas& cublas);

// P·V.
cublasStatus_t MultiplyProbabilityValue(const AttentionShape& shape, const SequenceRun& run, const RunMatrices& matrices,
                                        const Cublas& cublas);

}  // namespace ridgeline::kernels::attention
