// What a CUDA launch function returns: the first call that failed, by the library that failed it.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

namespace ridgeline::kernels {

struct [[nodiscard]] CudaStatus {
  cudaError_t cuda = cudaSuccess;
  cublasStatus_t cublas = CUBLAS_STATUS_SUCCESS;

  constexpr CudaStatus() = default;
  constexpr CudaStatus(cudaError_t error) : cuda(error) {}         // NOLINT: a status is what a call returned
  constexpr CudaStatus(cublasStatus_t status) : cublas(status) {}  // NOLINT

  constexpr bool ok() const { return cuda == cudaSuccess && cublas == CUBLAS_STATUS_SUCCESS; }
};

}  // namespace ridgeline::kernels
