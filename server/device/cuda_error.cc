#include "server/device/cuda_error.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "server/base/error.h"

namespace ridgeline::device {
namespace {

absl::StatusCode CodeOf(cudaError_t error) {
  if (IsSticky(error)) return absl::StatusCode::kUnavailable;
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorSystemNotReady:
    case cudaErrorInitializationError:
    case cudaErrorNoKernelImageForDevice:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::StatusCode CodeOf(cublasStatus_t status) {
  return status == CUBLAS_STATUS_ALLOC_FAILED ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal;
}

// cuBLAS' own function for this lies in the library that may not be there.
const char* NameOf(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR:
      return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "an unknown cuBLAS status";
}

absl::Status WithReasonOfCode(absl::StatusCode code, const std::string& message) {
  const absl::Status status(code, message);
  switch (code) {
    case absl::StatusCode::kUnavailable:
      return base::WithReason(status, base::kReasonDeviceFailed);
    case absl::StatusCode::kResourceExhausted:
      return base::WithReason(status, base::kReasonOutOfMemory);
    default:
      return status;
  }
}

}  // namespace

bool IsSticky(cudaError_t error) {
  switch (error) {
    // A kernel went wrong.
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorTensorMemoryLeak:
    // The hardware, or what stands between it and us, did.
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorExternalDevice:
    case cudaErrorMpsClientTerminated:
    case cudaErrorMpsRpcFailure:
    // The context has gone, or nobody knows.
    case cudaErrorContextIsDestroyed:
    case cudaErrorCudartUnloading:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

absl::Status ToStatus(absl::string_view call, const kernels::CudaStatus& status) {
  if (status.cuda != cudaSuccess) {
    return WithReasonOfCode(CodeOf(status.cuda), absl::StrCat(call, ": ", cudaGetErrorString(status.cuda), " (",
                                                              cudaGetErrorName(status.cuda), ")"));
  }
  if (status.cublas != CUBLAS_STATUS_SUCCESS) {
    return WithReasonOfCode(CodeOf(status.cublas), absl::StrCat(call, ": ", NameOf(status.cublas)));
  }
  return absl::OkStatus();
}

}  // namespace ridgeline::device
