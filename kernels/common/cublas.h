// cuBLAS as kernels see it: the functions they call, from wherever the caller loaded them. Nothing links against cuBLAS.
#pragma once

#include <cublas_v2.h>

namespace ridgeline::kernels {

// Entry points of libcublas, by their names.
struct CublasFunctions {
  decltype(&::cublasCreate_v2) create;
  decltype(&::cublasDestroy_v2) destroy;
  decltype(&::cublasSetStream_v2) set_stream;
  decltype(&::cublasSetWorkspace_v2) set_workspace;
  decltype(&::cublasSetMathMode) set_math_mode;
  decltype(&::cublasGemmEx) gemm_ex;
  decltype(&::cublasGemmStridedBatchedEx) gemm_strided_batched_ex;
  decltype(&::cublasGetStatusString) get_status_string;
};

// A handle with its stream and workspace set, used by one thread at a time. What it queues goes to that stream.
struct Cublas {
  const CublasFunctions* functions;
  cublasHandle_t handle;
};

}  // namespace ridgeline::kernels
