// In place of cuda_device.cc where there was no CUDA toolkit at build time.
#include "absl/status/status.h"
#include "server/device/cuda_device.h"

namespace ridgeline::device {

absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const CudaDeviceOptions& /*options*/) {
  return absl::UnimplementedError("this build has no CUDA: no toolkit was found when it was made");
}

}  // namespace ridgeline::device
