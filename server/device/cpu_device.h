// The CPU device: SIMD kernels on a thread pool, host memory behind the same caching allocator as a GPU's.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/common/blas_check.h"
#include "server/device/allocator_options.h"
#include "server/device/device.h"

namespace ridgeline::device {

struct CpuDeviceOptions {
  int num_lanes = 4;                    // [1, 1024]
  int num_threads = 0;                  // [0, 4096] threads that one kernel may use; 0 = as many as this process has cores
  std::int64_t memory_limit_bytes = 0;  // hard budget of the allocator; 0 = 80 % of the memory that this process may use
  AllocatorOptions allocator = {};

  // Whose answers are checked before anything relies on them. What standard attention multiplies with; a test passes a wrong
  // one.
  kernels::SgemmFunction sgemm = kernels::OpenBlasSgemm;
};

// Errors: INVALID_ARGUMENT for impossible options; FAILED_PRECONDITION if OpenBLAS computes wrong products on this processor
// (naming OPENBLAS_CORETYPE, which works around it); RESOURCE_EXHAUSTED if threads cannot be made.
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuDeviceOptions& options);

}  // namespace ridgeline::device
