// microbench.h's work on CUDA devices.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/common/cublas.h"
#include "kernels/common/cuda_status.h"
#include "kernels/common/data_type.h"

namespace ridgeline::kernels::microbench {

// Copies `bytes` bytes with a kernel, as fast as device memory allows. No overlap; any alignment.
cudaError_t LaunchCopy(void* destination, const void* source, std::int64_t bytes, cudaStream_t stream);

// C[m,n] = A[m,k] · B[n,k]ᵀ, row-major, float32 accumulation and result; A and B of `type` (float32, which is computed in
// float32 and not TF32, float16, bfloat16). k >= 1.
CudaStatus LaunchGemm(DataType type, std::int64_t m, std::int64_t n, std::int64_t k, const void* a, const void* b, float* c,
                      const Cublas& cublas);

// The elements of FillNormalOnCpu, to the rounding of its logarithm and cosine.
cudaError_t LaunchFillNormal(DataType type, std::int64_t elements, std::uint64_t seed, float mean, float standard_deviation,
                             void* destination, cudaStream_t stream);

}  // namespace ridgeline::kernels::microbench
