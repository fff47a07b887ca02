// Which device the daemon drives.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/device/cpu_device.h"
#include "server/device/cuda_device.h"
#include "server/device/device.h"

namespace ridgeline::device {

// kAuto: the first GPU, or the CPU if that cannot be used.
enum class DeviceRequest { kAuto, kCpu, kCuda };

struct SelectedDevice {
  std::unique_ptr<Device> device;
  std::string reason;  // why this one, a clause for people
};

// Makes a CUDA device; a test passes another.
using CudaFactory = std::function<absl::StatusOr<std::unique_ptr<Device>>(const CudaDeviceOptions&)>;

// `cuda.ordinal` counts for kCuda alone. Errors: of making the device that was asked for; kAuto fails only if the CPU device
// does, or if the options are impossible.
absl::StatusOr<SelectedDevice> SelectDevice(DeviceRequest request, const CpuDeviceOptions& cpu, CudaDeviceOptions cuda,
                                            const CudaFactory& create_cuda = CreateCudaDevice);

}  // namespace ridgeline::device
