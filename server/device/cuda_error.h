// The one place that turns what CUDA and cuBLAS return into a status.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/common/cuda_status.h"

namespace ridgeline::device {

// True for errors after which nothing works any more on the device in this process: its context is poisoned.
bool IsSticky(cudaError_t error);

// Ok, or what `call` failed with. Sticky errors: UNAVAILABLE, reason DEVICE_FAILED. No memory: RESOURCE_EXHAUSTED, reason
// OUT_OF_MEMORY. No driver, device or code for it: FAILED_PRECONDITION. Else INTERNAL.
absl::Status ToStatus(absl::string_view call, const kernels::CudaStatus& status);

}  // namespace ridgeline::device
