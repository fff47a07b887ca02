#include "server/device/select_device.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/status_macros.h"

namespace ridgeline::device {

absl::StatusOr<SelectedDevice> SelectDevice(DeviceRequest request, const CpuDeviceOptions& cpu, CudaDeviceOptions cuda,
                                            const CudaFactory& create_cuda) {
  SelectedDevice selected;
  if (request == DeviceRequest::kCpu) {
    selected.reason = "asked for by --device=cpu";
  } else if (request == DeviceRequest::kCuda) {
    RIDGELINE_ASSIGN_OR_RETURN(selected.device, create_cuda(cuda));
    selected.reason = absl::StrCat("asked for by --device=cuda:", cuda.ordinal);
    return selected;
  } else {
    cuda.ordinal = 0;
    absl::StatusOr<std::unique_ptr<Device>> gpu = create_cuda(cuda);
    if (gpu.ok()) return SelectedDevice{*std::move(gpu), "chosen by --device=auto: the first GPU"};
    if (absl::IsInvalidArgument(gpu.status())) return gpu.status();
    selected.reason = absl::StrCat("chosen by --device=auto: ", gpu.status().message());
  }
  RIDGELINE_ASSIGN_OR_RETURN(selected.device, CreateCpuDevice(cpu));
  return selected;
}

}  // namespace ridgeline::device
