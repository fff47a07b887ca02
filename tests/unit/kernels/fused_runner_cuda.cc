#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/fused/cost.h"
#include "kernels/fused/fused_cuda.h"
#include "tests/gpu/gpu.h"
#include "tests/support/fused_case.h"
#include "tests/unit/kernels/fused_runner.h"

namespace ridgeline::kernels::fused {
namespace {

constexpr std::int64_t kWordBytes = 16;

// A tensor's copy on the device, between guards, `offset_bytes` behind a multiple of 16. The bytes before it are NaN as well.
struct DeviceTensor {
  DeviceTensor(const support::FusedTensor& tensor, std::int64_t offset)
      : offset_bytes(offset), bytes(offset + tensor.size_bytes, std::byte{0xff}), array(offset + tensor.size_bytes) {
    std::copy_n(static_cast<const std::byte*>(*tensor.pointer), tensor.size_bytes, bytes.begin() + offset);
    array.Upload(bytes.data());
  }

  std::int64_t offset_bytes;
  std::vector<std::byte> bytes;
  gpu::GuardedDeviceArray array;
};

std::int64_t OffsetBytes(const support::FusedTensor& tensor, Placement placement, std::int64_t tensor_idx) {
  if (placement == Placement::kWords) return 0;
  const std::int64_t elements = placement == Placement::kAlike ? 1 : tensor_idx * 3 + 1;
  return elements * tensor.element_bytes % kWordBytes;
}

}  // namespace

::testing::AssertionResult RunFused(const FusedParams& params, Mode mode, Placement placement) {
  FusedParams on_device = params, on_host = params;
  const std::vector<support::FusedTensor> host_tensors = support::TensorsOf(on_host), slots = support::TensorsOf(on_device);
  std::vector<std::unique_ptr<DeviceTensor>> tensors;
  for (std::size_t i = 0; i < host_tensors.size(); ++i) {
    const std::int64_t offset = OffsetBytes(host_tensors[i], placement, static_cast<std::int64_t>(i));
    tensors.push_back(std::make_unique<DeviceTensor>(host_tensors[i], offset));
  }
  for (std::size_t i = 0; i < slots.size(); ++i) *slots[i].pointer = tensors[i]->array.data() + tensors[i]->offset_bytes;
  const gpu::GuardedDeviceArray workspace(WorkspaceBytes(params.shape, mode));
  on_device.workspace = workspace.data();

  const CudaLimits limits = {.compute_capability = gpu::Limits().compute_capability, .num_sms = gpu::Limits().num_sms};
  const cudaError_t launched = LaunchFused(on_device, mode, limits, gpu::Stream());
  if (launched != cudaSuccess) return ::testing::AssertionFailure() << "launch: " << cudaGetErrorString(launched);
  if (const cudaError_t done = cudaStreamSynchronize(gpu::Stream()); done != cudaSuccess) {
    gpu::Check(done, "a kernel");  // nothing on this device can be trusted any more
  }

  if (!workspace.guards_whole()) return ::testing::AssertionFailure() << "wrote past its workspace";
  for (std::size_t i = 0; i < host_tensors.size(); ++i) {
    const support::FusedTensor& tensor = host_tensors[i];
    DeviceTensor& copy = *tensors[i];
    if (!copy.array.guards_whole()) return ::testing::AssertionFailure() << "wrote past the end of " << tensor.name;
    std::vector<std::byte> bytes(copy.bytes.size());
    copy.array.Download(bytes.data());
    if (!tensor.is_output && bytes != copy.bytes) return ::testing::AssertionFailure() << "wrote to " << tensor.name;
    if (!std::equal(bytes.begin(), bytes.begin() + copy.offset_bytes, copy.bytes.begin())) {
      return ::testing::AssertionFailure() << "wrote before " << tensor.name;
    }
    if (tensor.is_output) {
      std::copy(bytes.begin() + copy.offset_bytes, bytes.end(), static_cast<std::byte*>(*tensor.pointer));
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace ridgeline::kernels::fused
