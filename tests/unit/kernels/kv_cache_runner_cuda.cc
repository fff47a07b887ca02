#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/common/cuda_status.h"
#include "kernels/kv_cache/kv_cache.h"
#include "kernels/kv_cache/kv_cache_cuda.h"
#include "tests/gpu/gpu.h"
#include "tests/unit/kernels/kv_cache_runner.h"

namespace ridgeline::kernels::kv_cache {
namespace {

// No input under test makes a launch fail.
void Await(cudaError_t launched, const char* call) {
  gpu::Check(launched, call);
  gpu::Check(cudaStreamSynchronize(gpu::Stream()), call);
}

}  // namespace

struct DeviceBytes::Memory {
  gpu::GuardedDeviceArray array;
};

DeviceBytes::DeviceBytes(std::span<const std::byte> bytes) : memory_(new Memory{gpu::GuardedDeviceArray(bytes.size())}) {
  memory_->array.Upload(bytes.data());
}

DeviceBytes::~DeviceBytes() = default;

void* DeviceBytes::data() const { return memory_->array.data(); }

bool DeviceBytes::Hold(std::span<const std::byte> bytes) const {
  return memory_->array.size_bytes() == static_cast<std::int64_t>(bytes.size()) && memory_->array.Holds(bytes.data());
}

bool DeviceBytes::guards_whole() const { return memory_->array.guards_whole(); }

void RunAppend(const AppendParams& params) { Await(LaunchAppend(params, gpu::Stream()), "LaunchAppend"); }
void RunGather(const GatherParams& params) { Await(LaunchGather(params, gpu::Stream()), "LaunchGather"); }
void RunCopyPages(const CopyPagesParams& params) { Await(LaunchCopyPages(params, gpu::Stream()), "LaunchCopyPages"); }

}  // namespace ridgeline::kernels::kv_cache
