// cuBLAS as kernels see it: the functions they call, from wherever the caller loaded them. Nothing links against cuBLAS.
#pragma once

#include <cublas_v2.h>

namespace ridgeline::kernels {

// cublas_v2.h overloads these two for the compute types of old, so their types have to be spelt out.
using CublasGemmEx = cublasStatus_t CUBLASWINAPI(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                                 int m, int n, int k, const void* alpha, const void* a, cudaDataType a_type,
                                                 int lda, const void* b, cudaDataType b_type, int ldb, const void* beta,
                                                 void* c, cudaDataType c_type, int ldc, cublasComputeType_t compute_type,
                                                 cublasGemmAlgo_t algorithm);
using CublasGemmStridedBatchedEx = cublasStatus_t CUBLASWINAPI(cublasHandle_t handle, cublasOperation_t transa,
                                                               cublasOperation_t transb, int m, int n, int k, const void* alpha,
                                                               const void* a, cudaDataType a_type, int lda, long long stride_a,
                                                               const void* b, cudaDataType b_type, int ldb, long long stride_b,
                                                               const void* beta, void* c, cudaDataType c_type, int ldc,
                                                               long long stride_c, int batch_count,
                                                               cublasComputeType_t compute_type, cublasGemmAlgo_t algorithm);

// Entry points of libcublas, by their names.
struct CublasFunctions {
  decltype(&::cublasCreate_v2) create;
  decltype(&::cublasDestroy_v2) destroy;
  decltype(&::cublasSetStream_v2) set_stream;
  decltype(&::cublasSetWorkspace_v2) set_workspace;
  decltype(&::cublasSetMathMode) set_math_mode;
  CublasGemmEx* gemm_ex;
  CublasGemmStridedBatchedEx* gemm_strided_batched_ex;
  decltype(&::cublasGetStatusString) get_status_string;
};

// A handle with its stream and workspace set, used by one thread at a time. What it queues goes to that stream.
struct Cublas {
  const CublasFunctions* functions;
  cublasHandle_t handle;
};

}  // namespace ridgeline::kernels
