// Where an allocator's segments come from.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace ridgeline::device {

// Segments are whole multiples of this, and aligned to it: the page of a GPU, and a huge page of the host.
inline constexpr std::int64_t kSegmentAlignmentBytes = std::int64_t{2} << 20;

// Memory of one device, in segments. Called by one thread at a time.
class MemorySource {
 public:
  virtual ~MemorySource() = default;

  // `size_bytes` of uninitialised device memory, a multiple of kSegmentAlignmentBytes and aligned to it.
  virtual absl::StatusOr<void*> Map(std::int64_t size_bytes) = 0;

  // Gives a whole segment back. No queued work may use it any more.
  virtual void Unmap(void* data, std::int64_t size_bytes) = 0;
};

}  // namespace ridgeline::device
