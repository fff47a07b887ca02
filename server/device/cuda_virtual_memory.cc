#include "server/device/cuda_virtual_memory.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

#include "absl/memory/memory.h"
#include "server/base/status_macros.h"

namespace ridgeline::device {
namespace {

// The driver's errors have the numbers of the runtime's.
cudaError_t ToRuntime(CUresult result) { return static_cast<cudaError_t>(result); }

CUdeviceptr ToDriver(void* address) { return reinterpret_cast<CUdeviceptr>(address); }

template <typename Function>
bool FindFunction(CudaContext& context, const char* name, Function& function) {
  constexpr unsigned kSinceCuda = 10020;  // the version that brought virtual memory management
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const absl::Status status =
      RIDGELINE_CUDA_CALL(context, cudaGetDriverEntryPointByVersion, name, &address, kSinceCuda, cudaEnableDefault, &found);
  function = reinterpret_cast<Function>(address);
  return status.ok() && found == cudaDriverEntryPointSuccess && address != nullptr;
}

CUmemAllocationProp PropertiesOf(int ordinal) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = ordinal;
  return properties;
}

}  // namespace

bool CudaVirtualMemory::Find(CudaContext& context, Driver& driver) {
  return FindFunction(context, "cuDeviceGetAttribute", driver.device_get_attribute) &&
         FindFunction(context, "cuMemGetAllocationGranularity", driver.get_granularity) &&
         FindFunction(context, "cuMemAddressReserve", driver.address_reserve) &&
         FindFunction(context, "cuMemAddressFree", driver.address_free) &&
         FindFunction(context, "cuMemCreate", driver.create) && FindFunction(context, "cuMemRelease", driver.release) &&
         FindFunction(context, "cuMemMap", driver.map) && FindFunction(context, "cuMemUnmap", driver.unmap) &&
         FindFunction(context, "cuMemSetAccess", driver.set_access);
}

std::unique_ptr<CudaVirtualMemory> CudaVirtualMemory::TryCreate(CudaContext& context) {
  Driver driver = {};
  if (!Find(context, driver)) return nullptr;
  const CUmemAllocationProp properties = PropertiesOf(context.ordinal());
  int is_supported = 0;
  std::size_t granularity_bytes = 0;
  const absl::Status status = context.Call("cuDeviceGetAttribute", [&] {
    const CUresult result =
        driver.device_get_attribute(&is_supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, context.ordinal());
    if (result != CUDA_SUCCESS) return ToRuntime(result);
    return ToRuntime(driver.get_granularity(&granularity_bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  });
  const bool is_usable = status.ok() && is_supported != 0 && granularity_bytes > 0 &&
                         kSegmentAlignmentBytes % static_cast<std::int64_t>(granularity_bytes) == 0;
  return is_usable ? absl::WrapUnique(new CudaVirtualMemory(context, driver, properties)) : nullptr;
}

absl::StatusOr<void*> CudaVirtualMemory::ReserveAddresses(std::int64_t size_bytes) {
  CUdeviceptr address = 0;
  RIDGELINE_RETURN_IF_ERROR(context_.Call("cuMemAddressReserve", [&] {
    return ToRuntime(driver_.address_reserve(&address, static_cast<std::size_t>(size_bytes), kSegmentAlignmentBytes, 0, 0));
  }));
  return reinterpret_cast<void*>(address);
}

void CudaVirtualMemory::ReleaseAddresses(void* addresses, std::int64_t size_bytes) {
  context_.CallOrLog("cuMemAddressFree", [&] {
    return ToRuntime(driver_.address_free(ToDriver(addresses), static_cast<std::size_t>(size_bytes)));
  });
}

absl::Status CudaVirtualMemory::MapChunk(void* address, std::int64_t size_bytes) {
  CUmemGenericAllocationHandle memory = 0;
  RIDGELINE_RETURN_IF_ERROR(context_.Call("cuMemCreate", [&] {
    return ToRuntime(driver_.create(&memory, static_cast<std::size_t>(size_bytes), &properties_, 0));
  }));
  absl::Status status = Map(ToDriver(address), size_bytes, memory);
  if (status.ok()) {
    chunks_[ToDriver(address)] = memory;
  } else {
    context_.CallOrLog("cuMemRelease", [&] { return ToRuntime(driver_.release(memory)); });
  }
  return status;
}

absl::Status CudaVirtualMemory::Map(CUdeviceptr address, std::int64_t size_bytes, CUmemGenericAllocationHandle memory) {
  const auto bytes = static_cast<std::size_t>(size_bytes);
  RIDGELINE_RETURN_IF_ERROR(context_.Call("cuMemMap", [&] { return ToRuntime(driver_.map(address, bytes, 0, memory, 0)); }));
  const CUmemAccessDesc access = {.location = properties_.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  absl::Status status =
      context_.Call("cuMemSetAccess", [&] { return ToRuntime(driver_.set_access(address, bytes, &access, 1)); });
  if (!status.ok()) {
    context_.CallOrLog("cuMemUnmap", [&] { return ToRuntime(driver_.unmap(address, bytes)); });
  }
  return status;
}

void CudaVirtualMemory::UnmapChunk(void* address, std::int64_t size_bytes) {
  const auto chunk = chunks_.find(ToDriver(address));
  context_.CallOrLog("cuMemUnmap",
                     [&] { return ToRuntime(driver_.unmap(chunk->first, static_cast<std::size_t>(size_bytes))); });
  context_.CallOrLog("cuMemRelease", [&] { return ToRuntime(driver_.release(chunk->second)); });
  chunks_.erase(chunk);
}

}  // namespace ridgeline::device
