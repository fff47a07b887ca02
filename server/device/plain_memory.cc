#include "server/device/plain_memory.h"

#include <cstddef>

#include "server/base/status_macros.h"

namespace ridgeline::device {

absl::StatusOr<Buffer> PlainMemory::Allocate(std::int64_t size_bytes) {
  void* data = nullptr;
  const auto size = static_cast<std::size_t>(size_bytes);
  RIDGELINE_RETURN_IF_ERROR(context_.Call("cudaMalloc", [&] {
    return allocator_ == PlainAllocator::kDeviceMalloc ? cudaMalloc(&data, size) : cudaMallocAsync(&data, size, stream_);
  }));
  return Buffer(this, data, size_bytes);
}

void PlainMemory::Free(void* data) {
  context_.CallOrLog(
      "cudaFree", [&] { return allocator_ == PlainAllocator::kDeviceMalloc ? cudaFree(data) : cudaFreeAsync(data, stream_); });
}

}  // namespace ridgeline::device
