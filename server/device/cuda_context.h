// The way to CUDA: every call of the server's goes through here, for one device.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "kernels/common/cuda_status.h"
#include "server/device/device_loss.h"

// RIDGELINE_CUDA_CALL(context, cudaMemcpyAsync, to, from, size, kind, stream): calls it; an absl::Status.
#define RIDGELINE_CUDA_CALL(context, function, ...) (context).Call(#function, [&] { return function(__VA_ARGS__); })

namespace ridgeline::device {

// Thread-safe.
class CudaContext {
 public:
  // `inject_error`: see CudaDeviceOptions.
  CudaContext(int ordinal, std::function<int(const char* call)> inject_error)
      : ordinal_(ordinal), inject_error_(std::move(inject_error)) {}

  int ordinal() const { return ordinal_; }
  DeviceLoss& loss() { return loss_; }

  // Runs `function`, which returns a cudaError_t, a cublasStatus_t or a CudaStatus, with the device current on this thread.
  // `name` is what an error is blamed on. After a sticky error the device is lost: this call and all later ones, which are not
  // made, return the loss.
  template <typename Function>
  absl::Status Call(const char* name, Function&& function) {
    if (absl::Status lost = loss_.status(); !lost.ok()) return lost;
    kernels::CudaStatus result = Prepare(name);
    if (result.ok()) result = std::forward<Function>(function)();
    return result.ok() ? absl::OkStatus() : Fail(name, result);
  }

  // As Call, for destructors: a failure is logged, the loss of the device is not: it has been said.
  template <typename Function>
  void CallOrLog(const char* name, Function&& function) {
    Log(Call(name, std::forward<Function>(function)));
  }

 private:
  kernels::CudaStatus Prepare(const char* name) const;
  absl::Status Fail(const char* name, const kernels::CudaStatus& result);
  void Log(const absl::Status& status) const;

  const int ordinal_;
  const std::function<int(const char* call)> inject_error_;
  DeviceLoss loss_;
};

}  // namespace ridgeline::device
