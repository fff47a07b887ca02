// Host memory in the ways that CUDA tells apart.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "server/device/cuda_context.h"
#include "server/device/device.h"

namespace ridgeline::device {

// See Device::AllocateHostMemory. The context outlives the memory. Errors: RESOURCE_EXHAUSTED, UNAVAILABLE, INTERNAL.
absl::StatusOr<std::shared_ptr<void>> AllocateCudaHostMemory(CudaContext& context, HostMemoryKind kind,
                                                             std::int64_t size_bytes);

}  // namespace ridgeline::device
