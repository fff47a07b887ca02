#include "server/device/cuda_info.h"

#include <array>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"

namespace ridgeline::device {
namespace {

// 0 if the driver does not say: peaks are shown, nothing depends on them.
std::int64_t AttributeOrZero(CudaContext& context, cudaDeviceAttr attribute) {
  int value = 0;
  const absl::Status status = RIDGELINE_CUDA_CALL(context, cudaDeviceGetAttribute, &value, attribute, context.ordinal());
  return status.ok() ? value : 0;
}

double MemoryBytesPerSecond(CudaContext& context) {
  const double clock_hz = 1e3 * static_cast<double>(AttributeOrZero(context, cudaDevAttrMemoryClockRate));
  const double bus_bytes = static_cast<double>(AttributeOrZero(context, cudaDevAttrGlobalMemoryBusWidth)) / 8;
  return 2 * clock_hz * bus_bytes;  // data moves on both edges of the clock
}

DeviceInfo Describe(CudaContext& context, const cudaDeviceProp& properties) {
  const int capability = properties.major * 10 + properties.minor;
  const double clocks_per_second =
      1e3 * static_cast<double>(AttributeOrZero(context, cudaDevAttrClockRate)) * properties.multiProcessorCount;
  DeviceInfo info = {};
  info.name = properties.name;
  info.type = DeviceType::kCuda;
  info.instruction_set = absl::StrCat("sm_", capability);
  info.compute_units = properties.multiProcessorCount;
  info.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  // One pool of memory for shared memory and the L1 cache.
  info.l1_cache_bytes = static_cast<std::int64_t>(properties.sharedMemPerMultiprocessor);
  info.l2_cache_bytes = properties.l2CacheSize;
  info.theoretical_bytes_per_second = MemoryBytesPerSecond(context);
  info.theoretical_float32_flops_per_second = clocks_per_second * Float32FlopsPerClock(capability);
  info.theoretical_float16_flops_per_second = clocks_per_second * TensorFlopsPerClock(capability);
  info.theoretical_bfloat16_flops_per_second = info.theoretical_float16_flops_per_second;
  return info;
}

kernels::attention::CudaLimits LimitsOf(const cudaDeviceProp& properties) {
  return {.compute_capability = properties.major * 10 + properties.minor,
          .num_sms = properties.multiProcessorCount,
          .shared_memory_bytes_per_sm = static_cast<std::int64_t>(properties.sharedMemPerMultiprocessor),
          .shared_memory_bytes_per_block = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin),
          .l2_cache_bytes = properties.l2CacheSize};
}

}  // namespace

absl::StatusOr<CudaInfo> ReadCudaInfo(CudaContext& context) {
  cudaDeviceProp properties = {};
  RIDGELINE_RETURN_IF_ERROR(
      context.Call("cudaGetDeviceProperties", [&] { return cudaGetDeviceProperties(&properties, context.ordinal()); }));
  std::array<char, 32> pci_bus_id = {};
  RIDGELINE_RETURN_IF_ERROR(RIDGELINE_CUDA_CALL(context, cudaDeviceGetPCIBusId, pci_bus_id.data(),
                                                static_cast<int>(pci_bus_id.size()), context.ordinal()));
  return CudaInfo{.device = Describe(context, properties), .limits = LimitsOf(properties), .pci_bus_id = pci_bus_id.data()};
}

int TensorFlopsPerClock(int compute_capability) {
  switch (compute_capability) {
    case 80:
      return 2048;
    case 86:  // of the data-centre boards; GeForce ones reach half when they sum in float32
    case 89:
      return 1024;
    case 90:
      return 4096;
    case 100:
    case 103:
      return 8192;
    default:
      return 0;
  }
}

int Float32FlopsPerClock(int compute_capability) {
  switch (compute_capability) {
    case 80:
      return 128;
    case 86:
    case 89:
    case 90:
    case 100:
    case 103:
    case 120:
      return 256;
    default:
      return 0;
  }
}

}  // namespace ridgeline::device
