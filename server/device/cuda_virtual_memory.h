// Addresses and memory of a CUDA device, taken and given back apart from each other: the driver's virtual memory management.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/device/cuda_context.h"
#include "server/device/memory_source.h"

namespace ridgeline::device {

// Giving memory back does not wait for the device: whoever does that knows that no queued work uses it.
class CudaVirtualMemory final : public GrowingMemory {
 public:
  // Null if the device or the driver cannot do it.
  static std::unique_ptr<CudaVirtualMemory> TryCreate(CudaContext& context);

  absl::StatusOr<void*> ReserveAddresses(std::int64_t size_bytes) override;
  void ReleaseAddresses(void* addresses, std::int64_t size_bytes) override;
  absl::Status MapChunk(void* address, std::int64_t size_bytes) override;
  void UnmapChunk(void* address, std::int64_t size_bytes) override;

 private:
  // Functions of the driver, which nothing links against.
  struct Driver {
    decltype(&cuDeviceGetAttribute) device_get_attribute;
    decltype(&cuMemGetAllocationGranularity) get_granularity;
    decltype(&cuMemAddressReserve) address_reserve;
    decltype(&cuMemAddressFree) address_free;
    decltype(&cuMemCreate) create;
    decltype(&cuMemRelease) release;
    decltype(&cuMemMap) map;
    decltype(&cuMemUnmap) unmap;
    decltype(&cuMemSetAccess) set_access;
  };

  CudaVirtualMemory(CudaContext& context, const Driver& driver, const CUmemAllocationProp& properties)
      : context_(context), driver_(driver), properties_(properties) {}

  static bool Find(CudaContext& context, Driver& driver);
  absl::Status Map(CUdeviceptr address, std::int64_t size_bytes, CUmemGenericAllocationHandle memory);

  CudaContext& context_;
  const Driver driver_;
  const CUmemAllocationProp properties_;
  std::map<CUdeviceptr, CUmemGenericAllocationHandle> chunks_;  // by address
};

}  // namespace ridgeline::device
