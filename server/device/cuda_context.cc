#include "server/device/cuda_context.h"

#include "server/base/log.h"
#include "server/device/cuda_error.h"

namespace ridgeline::device {

kernels::CudaStatus CudaContext::Prepare(const char* name) const {
  if (inject_error_ != nullptr) {
    if (const int error = inject_error_(name); error != 0) return static_cast<cudaError_t>(error);
  }
  // The current device is a thread's own, and callers come on any thread.
  return cudaSetDevice(ordinal_);
}

absl::Status CudaContext::Fail(const char* name, const kernels::CudaStatus& result) {
  // Clears the thread's last error, which a later launch would find. cuBLAS says no more than that it failed; the cause may be
  // there.
  const cudaError_t last = cudaGetLastError();
  const bool told_by_cublas = result.cuda == cudaSuccess && IsSticky(last);
  const kernels::CudaStatus cause = told_by_cublas ? kernels::CudaStatus(last) : result;
  absl::Status status = ToStatus(name, cause);
  if (!IsSticky(cause.cuda)) return status;
  loss_.Lose(status);
  return loss_.status();
}

void CudaContext::Log(const absl::Status& status) const {
  if (status.ok() || !loss_.status().ok()) return;
  base::Log(base::LogLevel::kError, "could not let go of a CUDA resource", {{"error", status.message()}});
}

}  // namespace ridgeline::device
