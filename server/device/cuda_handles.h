// Owners of CUDA's handles: move-only, made by factories, each of one device. Destructors log what fails.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/status/statusor.h"
#include "server/base/status_macros.h"
#include "server/device/cuda_context.h"

namespace ridgeline::device {

// A stream that does not wait for the default stream, nor makes it wait. The destructor lets queued work run.
class CudaStream {
 public:
  static absl::StatusOr<CudaStream> Create(CudaContext& context) {
    cudaStream_t stream = nullptr;
    RIDGELINE_RETURN_IF_ERROR(RIDGELINE_CUDA_CALL(context, cudaStreamCreateWithFlags, &stream, cudaStreamNonBlocking));
    return CudaStream(context, stream);
  }
  CudaStream(CudaStream&& other) noexcept : context_(other.context_), stream_(std::exchange(other.stream_, nullptr)) {}
  CudaStream& operator=(CudaStream&&) = delete;
  ~CudaStream() {
    if (stream_ != nullptr) context_.CallOrLog("cudaStreamDestroy", [this] { return cudaStreamDestroy(stream_); });
  }

  cudaStream_t get() const { return stream_; }

 private:
  CudaStream(CudaContext& context, cudaStream_t stream) : context_(context), stream_(stream) {}

  CudaContext& context_;
  cudaStream_t stream_;
};

// Events with and without a time are different types: `kFlags` as cudaEventCreateWithFlags has them.
template <unsigned kFlags>
class BasicCudaEvent {
 public:
  static absl::StatusOr<BasicCudaEvent> Create(CudaContext& context) {
    cudaEvent_t event = nullptr;
    RIDGELINE_RETURN_IF_ERROR(RIDGELINE_CUDA_CALL(context, cudaEventCreateWithFlags, &event, kFlags));
    return BasicCudaEvent(context, event);
  }
  BasicCudaEvent(BasicCudaEvent&& other) noexcept : context_(other.context_), event_(std::exchange(other.event_, nullptr)) {}
  BasicCudaEvent& operator=(BasicCudaEvent&&) = delete;
  ~BasicCudaEvent() {
    if (event_ != nullptr) context_.CallOrLog("cudaEventDestroy", [this] { return cudaEventDestroy(event_); });
  }

  cudaEvent_t get() const { return event_; }

 private:
  BasicCudaEvent(CudaContext& context, cudaEvent_t event) : context_(context), event_(event) {}

  CudaContext& context_;
  cudaEvent_t event_;
};

// Its time can be read; whoever waits for it sleeps.
using TimedCudaEvent = BasicCudaEvent<cudaEventBlockingSync>;
// Only marks a point, which is cheaper.
using CudaEvent = BasicCudaEvent<cudaEventDisableTiming | cudaEventBlockingSync>;

}  // namespace ridgeline::device
