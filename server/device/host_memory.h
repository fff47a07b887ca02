// Host memory as a memory source: what the CPU device allocates from.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/device/memory_source.h"

namespace ridgeline::device {

// Anonymous mappings, in huge pages where the kernel has them. Pages take physical memory when they are first written. Reserved
// addresses are pages that nobody may touch.
class HostMemory final : public MemorySource, public GrowingMemory {
 public:
  absl::StatusOr<void*> Map(std::int64_t size_bytes) override;
  void Unmap(void* data, std::int64_t size_bytes) override;
  GrowingMemory* growing() override { return this; }

  absl::StatusOr<void*> ReserveAddresses(std::int64_t size_bytes) override;
  void ReleaseAddresses(void* addresses, std::int64_t size_bytes) override;
  absl::Status MapChunk(void* address, std::int64_t size_bytes) override;
  void UnmapChunk(void* address, std::int64_t size_bytes) override;
};

}  // namespace ridgeline::device
