// CUDA's own allocators as owners of buffers, to measure ours beside them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/device/buffer.h"
#include "server/device/cuda_context.h"
#include "server/device/device.h"

namespace ridgeline::device {

// Thread-safe; outlives its buffers.
class PlainMemory final : public BufferOwner {
 public:
  PlainMemory(CudaContext& context, PlainAllocator allocator, cudaStream_t stream)
      : context_(context), allocator_(allocator), stream_(stream) {}

  absl::StatusOr<Buffer> Allocate(std::int64_t size_bytes);
  void Free(void* data) override;

 private:
  CudaContext& context_;
  const PlainAllocator allocator_;
  const cudaStream_t stream_;
};

}  // namespace ridgeline::device
