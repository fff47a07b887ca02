// One small attention on a device's first lane, from upload to download.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/attention/attention.h"
#include "server/device/device.h"

namespace ridgeline::device {

inline constexpr float kEqualRows = 0.5f;  // every element of query, key and value, and so of the output
inline constexpr float kUntouched = 7.0f;  // what the output holds before

// The output; float32, one head, as many queries as keys. `phases`, which may be null, gets the names of the kernel's phases.
// After an error too all that was queued has completed.
absl::StatusOr<std::vector<float>> AttendEqualRows(Device& device, kernels::attention::Algorithm algorithm, CancelToken cancel,
                                                   std::vector<std::string>* phases = nullptr);

}  // namespace ridgeline::device
