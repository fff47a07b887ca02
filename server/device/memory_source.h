// Where an allocator's segments come from.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ridgeline::device {

// Segments are whole multiples of this, and aligned to it: the page of a GPU, and a huge page of the host.
inline constexpr std::int64_t kSegmentAlignmentBytes = std::int64_t{2} << 20;

// Addresses of one device, to which memory is given and taken back piece by piece, so that a segment grows in place. Sizes are
// multiples of kSegmentAlignmentBytes. Called by one thread at a time.
class GrowingMemory {
 public:
  virtual ~GrowingMemory() = default;

  // Addresses with no memory behind them, aligned to kSegmentAlignmentBytes.
  virtual absl::StatusOr<void*> ReserveAddresses(std::int64_t size_bytes) = 0;
  // Nothing is mapped there any more.
  virtual void ReleaseAddresses(void* addresses, std::int64_t size_bytes) = 0;

  // Uninitialised memory behind reserved addresses that have none, as one chunk.
  virtual absl::Status MapChunk(void* address, std::int64_t size_bytes) = 0;
  // Takes the memory of a whole chunk back. No queued work may use it any more.
  virtual void UnmapChunk(void* address, std::int64_t size_bytes) = 0;
};

// Memory of one device, in segments. Called by one thread at a time.
class MemorySource {
 public:
  virtual ~MemorySource() = default;

  // `size_bytes` of uninitialised device memory, a multiple of kSegmentAlignmentBytes and aligned to it.
  virtual absl::StatusOr<void*> Map(std::int64_t size_bytes) = 0;

  // Gives a whole segment back. No queued work may use it any more.
  virtual void Unmap(void* data, std::int64_t size_bytes) = 0;

  // The same memory for segments that grow; null where the device has no such thing.
  virtual GrowingMemory* growing() { return nullptr; }
};

// One segment of a source that outlives it, for what lives as long as a device does and needs no allocator.
class Segment {
 public:
  static absl::StatusOr<Segment> Map(MemorySource& source, std::int64_t size_bytes) {
    const absl::StatusOr<void*> data = source.Map(size_bytes);
    if (!data.ok()) return data.status();
    return Segment(source, *data, size_bytes);
  }
  Segment(Segment&& other) noexcept
      : source_(other.source_), data_(std::exchange(other.data_, nullptr)), size_bytes_(other.size_bytes_) {}
  Segment& operator=(Segment&&) = delete;
  ~Segment() {
    if (data_ != nullptr) source_.Unmap(data_, size_bytes_);
  }

  void* data() const { return data_; }
  std::int64_t size_bytes() const { return size_bytes_; }

 private:
  Segment(MemorySource& source, void* data, std::int64_t size_bytes) : source_(source), data_(data), size_bytes_(size_bytes) {}

  MemorySource& source_;
  void* data_;
  const std::int64_t size_bytes_;
};

}  // namespace ridgeline::device
