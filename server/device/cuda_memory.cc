#include "server/device/cuda_memory.h"

#include <cstddef>
#include <cstdint>

#include "server/base/check.h"
#include "server/base/status_macros.h"

namespace ridgeline::device {
namespace {

// What the allocators hand out is aligned to less than any page, so that is all they rely on.
void CheckAligned(const void* data) { RIDGELINE_CHECK(reinterpret_cast<std::uintptr_t>(data) % 512 == 0); }

}  // namespace

absl::StatusOr<void*> CudaMemory::Map(std::int64_t size_bytes) {
  void* data = nullptr;
  RIDGELINE_RETURN_IF_ERROR(
      context_.Call("cudaMalloc", [&] { return cudaMalloc(&data, static_cast<std::size_t>(size_bytes)); }));
  CheckAligned(data);
  return data;
}

void CudaMemory::Unmap(void* data, std::int64_t /*size_bytes*/) {
  context_.CallOrLog("cudaFree", [data] { return cudaFree(data); });
}

absl::StatusOr<void*> PinnedMemory::Map(std::int64_t size_bytes) {
  void* data = nullptr;
  RIDGELINE_RETURN_IF_ERROR(
      RIDGELINE_CUDA_CALL(context_, cudaHostAlloc, &data, static_cast<std::size_t>(size_bytes), cudaHostAllocDefault));
  CheckAligned(data);
  return data;
}

void PinnedMemory::Unmap(void* data, std::int64_t /*size_bytes*/) {
  context_.CallOrLog("cudaFreeHost", [data] { return cudaFreeHost(data); });
}

}  // namespace ridgeline::device
