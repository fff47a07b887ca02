// Copies scattered host memory, such as a message that came in pieces, into one place.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/common/executor.h"
#include "server/device/buffer.h"

namespace ridgeline::device {

// Writes the slices' bytes to `destination`, one after the other. Uses the executor's threads where that pays.
void GatherCopy(absl::Span<const HostSlice> slices, void* destination, kernels::Executor& executor);

}  // namespace ridgeline::device
