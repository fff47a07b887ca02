// A gate in a stream: what is queued behind it waits until the host opens it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ridgeline::kernels::microbench {

// Waits until *opened, in host memory that the device sees, is at least `ticket`; for some milliseconds at most, so that a host
// that cannot queue any more without the stream's progress does not wait for ever.
cudaError_t LaunchGate(const std::uint32_t* opened, std::uint32_t ticket, cudaStream_t stream);

}  // namespace ridgeline::kernels::microbench
