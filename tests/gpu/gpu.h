// The GPU that tests and benches run on: device 0, one stream of its own, cuBLAS if it is installed.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "kernels/attention/plan.h"
#include "kernels/common/cublas.h"
#include "kernels/common/cuda_status.h"

namespace ridgeline::gpu {

// Why there is no GPU to test, or empty if there is one.
std::string WhyNoGpu();

// Ends the process with the failed call's name and error: what the caller sets up cannot fail for a reason under test.
void Check(kernels::CudaStatus status, const char* call);

// A non-blocking stream that lives as long as the process.
cudaStream_t Stream();

// A handle on Stream() with its workspace set; ends the process if cuBLAS is not installed.
const kernels::Cublas& Cublas();

// What the planner needs to know of the device.
const kernels::attention::CudaLimits& Limits();

std::int64_t FreeMemoryBytes();

// "no error", or what failed.
std::string Describe(kernels::CudaStatus status);

// Memory of the device between two guards, everything filled with bytes that read as NaN in every float type; the data is
// aligned to 256 bytes. Queued on Stream(). With RIDGELINE_TEST_BARE_MEMORY=1, for compute-sanitizer, each is an allocation of
// exactly its size, without guards and not written to: the sanitizer sees every access past its ends and every read of what
// nobody wrote.
class GuardedDeviceArray {
 public:
  explicit GuardedDeviceArray(std::int64_t size_bytes);
  ~GuardedDeviceArray();
  GuardedDeviceArray(const GuardedDeviceArray&) = delete;
  GuardedDeviceArray& operator=(const GuardedDeviceArray&) = delete;

  std::byte* data() const { return data_; }
  std::int64_t size_bytes() const { return size_bytes_; }

  void Upload(const void* host);       // size_bytes() of it
  void Download(void* host) const;     // waits
  bool Holds(const void* host) const;  // waits
  bool guards_whole() const;           // waits

 private:
  std::byte* memory_ = nullptr;
  std::byte* data_ = nullptr;
  std::int64_t size_bytes_ = 0;
};

}  // namespace ridgeline::gpu
