// The device of whichever device_under_test_*.cc the program links: one suite judges every device.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "server/device/device.h"

namespace ridgeline::device {

// Two lanes. FAILED_PRECONDITION, with the reason, where the machine has no such device.
absl::StatusOr<std::unique_ptr<Device>> CreateDeviceUnderTest(std::int64_t memory_limit_bytes);

}  // namespace ridgeline::device
