// Host memory as a memory source: what the CPU device allocates from.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/device/memory_source.h"

namespace ridgeline::device {

// Anonymous mappings, in huge pages where the kernel has them. Pages take physical memory when they are first written.
class HostMemory final : public MemorySource {
 public:
  absl::StatusOr<void*> Map(std::int64_t size_bytes) override;
  void Unmap(void* data, std::int64_t size_bytes) override;
};

}  // namespace ridgeline::device
