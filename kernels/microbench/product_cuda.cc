#include "kernels/common/cuda_data_type.h"
#include "kernels/microbench/product.h"
#include "kernels/microbench/workload_cuda.h"

namespace ridgeline::kernels::microbench {

// cuBLAS thinks in columns: it sees each matrix transposed, and so computes Cᵀ = Bᵀ · Aᵀ. COMPUTE_32F admits TF32 for no type.
CudaStatus LaunchOnCuda(const ProductParams& params, const CudaSite& site) {
  const float one = 1, zero = 0;
  const cudaDataType_t type = CudaDataType(params.type);
  const auto m = static_cast<int>(params.m), n = static_cast<int>(params.n), k = static_cast<int>(params.k);
  return site.cublas.functions->gemm_ex(site.cublas.handle, params.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                                        params.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k, &one, params.b, type,
                                        params.transpose_b ? k : n, params.a, type, params.transpose_a ? m : k, &zero, params.c,
                                        type, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

}  // namespace ridgeline::kernels::microbench
