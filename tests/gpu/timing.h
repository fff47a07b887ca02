// Timing launches on Stream().
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>

#include "tests/gpu/gpu.h"

namespace ridgeline::gpu {

class TimedEvent {
 public:
  TimedEvent() { Check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~TimedEvent() { (void)cudaEventDestroy(event_); }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;

  void Record() const { Check(cudaEventRecord(event_, Stream()), "cudaEventRecord"); }
  double MillisecondsSince(const TimedEvent& start) const {
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, start.event_, event_), "cudaEventElapsedTime");
    return milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// While it lives, the stream runs nothing that is queued after it: short launches then follow each other without waiting for
// the host.
class StreamHold {
 public:
  StreamHold() { Check(cudaLaunchHostFunc(Stream(), &WaitForRelease, &released_), "cudaLaunchHostFunc"); }
  ~StreamHold() {
    released_ = true;
    released_.notify_all();
    Check(cudaStreamSynchronize(Stream()), "cudaStreamSynchronize");
  }

 private:
  static void CUDART_CB WaitForRelease(void* released) { static_cast<std::atomic<bool>*>(released)->wait(false); }

  std::atomic<bool> released_{false};
};

}  // namespace ridgeline::gpu
