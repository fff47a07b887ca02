#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/common/cuda_data_type.h"
#include "kernels/microbench/microbench_cuda.h"

namespace ridgeline::kernels::microbench {

CudaStatus LaunchGemm(DataType type, std::int64_t m, std::int64_t n, std::int64_t k, const void* a, const void* b, float* c,
                      const Cublas& cublas) {
  if (m == 0 || n == 0) return {};
  if (std::max({m, n, k}) > std::numeric_limits<int>::max()) return CUBLAS_STATUS_NOT_SUPPORTED;
  const float one = 1;
  const float zero = 0;
  const int rows = static_cast<int>(m);
  const int columns = static_cast<int>(n);
  const int depth = static_cast<int>(k);
  const cudaDataType_t input = CudaDataType(type);
  // cuBLAS thinks in columns: it sees each matrix transposed, and so computes Cᵀ = B · Aᵀ. COMPUTE_32F admits TF32 for no type.
  return cublas.functions->gemm_ex(cublas.handle, CUBLAS_OP_T, CUBLAS_OP_N, columns, rows, depth, &one, b, input, depth, a,
                                   input, depth, &zero, c, CUDA_R_32F, columns, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

}  // namespace ridgeline::kernels::microbench
