// cuBLAS, opened at run time; dynamic_library.h says why. cuBLASLt comes with it: libcublas loads it, and nothing here calls
// it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/common/cublas.h"
#include "server/device/cuda_context.h"

namespace ridgeline::device {

// The library of the major version that this was compiled against: the functions' types are that version's. Needs no GPU.
// Errors: FAILED_PRECONDITION.
absl::StatusOr<kernels::CublasFunctions> LoadCublas();

// A handle on a stream, with a workspace of its own so that cuBLAS allocates none.
class CublasHandle {
 public:
  // What is given outlives the handle.
  static absl::StatusOr<std::unique_ptr<CublasHandle>> Create(CudaContext& context, const kernels::CublasFunctions& functions,
                                                              cudaStream_t stream, void* workspace,
                                                              std::int64_t workspace_bytes);

  ~CublasHandle();
  CublasHandle(const CublasHandle&) = delete;
  CublasHandle& operator=(const CublasHandle&) = delete;

  const kernels::Cublas& view() const { return view_; }

 private:
  CublasHandle(CudaContext& context, const kernels::Cublas& view) : context_(context), view_(view) {}

  CudaContext& context_;
  const kernels::Cublas view_;
};

}  // namespace ridgeline::device
