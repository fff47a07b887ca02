// Walks through scattered host memory in pieces of any size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "server/device/buffer.h"

namespace ridgeline::device {

class SliceCursor {
 public:
  explicit SliceCursor(absl::Span<const HostSlice> slices) : slices_(slices) {}

  // The next `size_bytes` bytes, of which there are that many.
  std::vector<HostSlice> Take(std::int64_t size_bytes) {
    std::vector<HostSlice> taken;
    while (size_bytes > 0) {
      const HostSlice& slice = slices_[slice_idx_];
      const std::int64_t part_bytes = std::min(size_bytes, slice.size_bytes - offset_bytes_);
      if (part_bytes > 0) taken.push_back({static_cast<const char*>(slice.data) + offset_bytes_, part_bytes});
      size_bytes -= part_bytes;
      offset_bytes_ += part_bytes;
      if (offset_bytes_ == slice.size_bytes) {
        ++slice_idx_;
        offset_bytes_ = 0;
      }
    }
    return taken;
  }

 private:
  const absl::Span<const HostSlice> slices_;
  std::size_t slice_idx_ = 0;
  std::int64_t offset_bytes_ = 0;  // in that slice
};

}  // namespace ridgeline::device
