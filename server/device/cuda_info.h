// What CUDA says of a device.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "kernels/attention/plan.h"
#include "server/device/cuda_context.h"
#include "server/device/device.h"

namespace ridgeline::device {

struct CudaInfo {
  DeviceInfo device;  // but for memory_limit_bytes
  kernels::attention::CudaLimits limits;
  std::string pci_bus_id;
};

absl::StatusOr<CudaInfo> ReadCudaInfo(CudaContext& context);

// Dense products' multiplications and additions of one multiprocessor in one clock, from NVIDIA's architecture white papers; 0
// = unknown. `compute_capability` = major * 10 + minor.
int TensorFlopsPerClock(int compute_capability);   // float16 and bfloat16, summed in float32
int Float32FlopsPerClock(int compute_capability);  // outside the tensor cores

}  // namespace ridgeline::device
