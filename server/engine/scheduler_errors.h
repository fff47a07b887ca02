// How works end that come to no result.
#pragma once

#include "absl/status/status.h"

namespace ridgeline::engine {

absl::Status Draining(const char* message);  // UNAVAILABLE
absl::Status DrainingTakesNoWork();          // likewise
absl::Status Cancelled();
absl::Status DeadlineExceeded();
absl::Status DeviceIsTaken();  // RESOURCE_EXHAUSTED: a benchmark has it

// RESOURCE_EXHAUSTED for want of device memory.
bool IsOutOfMemory(const absl::Status& status);

}  // namespace ridgeline::engine
