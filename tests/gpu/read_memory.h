// Reading memory and nothing else: the floor of every kernel that must read as much, and what empties the L2 cache.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ridgeline::gpu {

// Reads [data, data + size_bytes), a multiple of 16 and aligned to it, by ordinary loads of the whole device. `sink`, of the
// device, is written to only if the bytes are what nobody puts there.
cudaError_t LaunchRead(const void* data, std::int64_t size_bytes, std::uint32_t* sink, cudaStream_t stream);

}  // namespace ridgeline::gpu
