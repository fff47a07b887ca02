// Memory of a CUDA device, and host memory that it reads and writes by itself, as memory sources.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "server/device/cuda_context.h"
#include "server/device/cuda_virtual_memory.h"
#include "server/device/memory_source.h"

namespace ridgeline::device {

// cudaMalloc. Giving memory back waits for all work of the device, so a request's path meets it only when memory is short.
class CudaMemory final : public MemorySource {
 public:
  explicit CudaMemory(CudaContext& context) : context_(context), growing_(CudaVirtualMemory::TryCreate(context)) {}

  absl::StatusOr<void*> Map(std::int64_t size_bytes) override;
  void Unmap(void* data, std::int64_t size_bytes) override;
  GrowingMemory* growing() override { return growing_.get(); }

 private:
  CudaContext& context_;
  const std::unique_ptr<CudaVirtualMemory> growing_;  // may be null
};

// Pinned host memory, which copies run to and from while the host does something else. Taking it is slow (the system pins each
// page) and giving it back waits for the device: it is pooled.
class PinnedMemory final : public MemorySource {
 public:
  explicit PinnedMemory(CudaContext& context) : context_(context) {}

  absl::StatusOr<void*> Map(std::int64_t size_bytes) override;
  void Unmap(void* data, std::int64_t size_bytes) override;

 private:
  CudaContext& context_;
};

}  // namespace ridgeline::device
