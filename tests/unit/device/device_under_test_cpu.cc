#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "server/device/cpu_device.h"
#include "tests/unit/device/device_under_test.h"

namespace ridgeline::device {

absl::StatusOr<std::unique_ptr<Device>> CreateDeviceUnderTest(std::int64_t memory_limit_bytes) {
  return CreateCpuDevice({.num_lanes = 3, .num_threads = 2, .memory_limit_bytes = memory_limit_bytes});
}

}  // namespace ridgeline::device
