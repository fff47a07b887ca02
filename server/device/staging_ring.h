// Pinned memory through which a lane's uploads pass, slot after slot, so that the host fills one while the device reads others.
//
//   slices ──gather──► slot 0 │ slot 1 │ slot 2 │ slot 3 ──copy on the stream──► device memory
//                      filled   read     read     free
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/device/cuda_context.h"
#include "server/device/cuda_handles.h"
#include "server/device/memory_source.h"

namespace ridgeline::device {

// Of one thread.
class StagingRing {
 public:
  static constexpr int kNumSlots = 4;
  // Long enough that a copy runs at the bus' full rate, short enough that the first starts soon.
  static constexpr std::int64_t kSlotBytes = std::int64_t{4} << 20;

  // `stream` is where copies out of the ring are queued, and outlives it.
  static absl::StatusOr<StagingRing> Create(CudaContext& context, MemorySource& pinned_memory, cudaStream_t stream);

  // Between 1 and `wanted_bytes` (> 0) bytes to fill, once the device no longer reads them; the copy that reads them must be
  // queued before the next call.
  absl::StatusOr<absl::Span<char>> Take(std::int64_t wanted_bytes);

 private:
  struct Slot {
    CudaEvent read;           // recorded behind the last copy out of the slot
    bool is_pending = false;  // recorded, not waited for
  };

  StagingRing(CudaContext& context, cudaStream_t stream, Segment memory, std::vector<Slot> slots)
      : context_(context), stream_(stream), memory_(std::move(memory)), slots_(std::move(slots)) {}

  // Makes the next slot the current one.
  absl::Status Advance();

  CudaContext& context_;
  const cudaStream_t stream_;
  Segment memory_;           // [kNumSlots, kSlotBytes]
  std::vector<Slot> slots_;  // [kNumSlots]
  int current_ = 0;
  std::int64_t used_bytes_ = 0;  // of the current slot
};

}  // namespace ridgeline::device
