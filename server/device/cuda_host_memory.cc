#include "server/device/cuda_host_memory.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "server/base/error.h"
#include "server/base/status_macros.h"

namespace ridgeline::device {
namespace {

constexpr std::size_t kPageBytes = 4096;

absl::StatusOr<std::shared_ptr<void>> AllocatePageable(std::size_t size_bytes) {
  void* const data = std::aligned_alloc(kPageBytes, (size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes);
  if (data != nullptr) return std::shared_ptr<void>(data, &std::free);
  return base::WithReason(absl::ResourceExhaustedError(absl::StrCat("the system refused ", size_bytes, " bytes")),
                          base::kReasonOutOfMemory);
}

absl::StatusOr<std::shared_ptr<void>> AllocatePinned(CudaContext& context, std::size_t size_bytes) {
  void* data = nullptr;
  RIDGELINE_RETURN_IF_ERROR(RIDGELINE_CUDA_CALL(context, cudaHostAlloc, &data, size_bytes, cudaHostAllocDefault));
  return std::shared_ptr<void>(
      data, [&context](void* memory) { context.CallOrLog("cudaFreeHost", [memory] { return cudaFreeHost(memory); }); });
}

absl::StatusOr<std::shared_ptr<void>> AllocateRegistered(CudaContext& context, std::size_t size_bytes) {
  RIDGELINE_ASSIGN_OR_RETURN(std::shared_ptr<void> pageable, AllocatePageable(size_bytes));
  RIDGELINE_RETURN_IF_ERROR(
      RIDGELINE_CUDA_CALL(context, cudaHostRegister, pageable.get(), size_bytes, cudaHostRegisterDefault));
  void* const data = pageable.get();
  return std::shared_ptr<void>(data, [&context, pageable = std::move(pageable)](void* memory) {
    context.CallOrLog("cudaHostUnregister", [memory] { return cudaHostUnregister(memory); });
  });
}

}  // namespace

absl::StatusOr<std::shared_ptr<void>> AllocateCudaHostMemory(CudaContext& context, HostMemoryKind kind,
                                                             std::int64_t size_bytes) {
  const auto size = static_cast<std::size_t>(size_bytes);
  switch (kind) {
    case HostMemoryKind::kPageable:
      return AllocatePageable(size);
    case HostMemoryKind::kPinned:
      return AllocatePinned(context, size);
    case HostMemoryKind::kRegistered:
      return AllocateRegistered(context, size);
  }
  return absl::InvalidArgumentError("there is no such kind of host memory");
}

}  // namespace ridgeline::device
