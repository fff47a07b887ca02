// The CUDA device. Free of CUDA headers, and in every build: one without a toolkit has only the error.
//
//   caller ──closures──► lane's thread ──copies, launches──► lane's stream
//                             │ gathers into pinned staging        │ event
//                             └────────────────────────────────────┴──► completion queue: one thread ──► OnComplete
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "server/device/allocator_options.h"
#include "server/device/device.h"

namespace ridgeline::device {

struct CudaDeviceOptions {
  int ordinal = 0;                      // as CUDA counts what CUDA_VISIBLE_DEVICES leaves
  int num_lanes = 4;                    // [1, 1024]
  int num_copy_threads = 0;             // [0, 4096] threads that gather large uploads; 0 = half of the cores, at most 8
  std::int64_t memory_limit_bytes = 0;  // hard budget of the allocator; 0 = what is free at start, less a reserve
  std::int64_t pinned_limit_bytes = 0;  // likewise, for results in host memory; 0 = a quarter of what the process may use
  AllocatorOptions allocator = {};      // of device memory

  // For tests: asked before each CUDA call of the server's; a cudaError_t other than 0 is what the call then returns, without
  // being made. Null: asked nothing. Any thread.
  std::function<int(const char* call)> inject_error = nullptr;
};

// Errors: INVALID_ARGUMENT for impossible options; UNIMPLEMENTED if this build has no CUDA; FAILED_PRECONDITION, saying what is
// missing, if there is no usable driver, device or cuBLAS; RESOURCE_EXHAUSTED if the device has no room for what the lanes
// need.
absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const CudaDeviceOptions& options);

}  // namespace ridgeline::device
