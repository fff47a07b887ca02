#include "server/api/report_converter.h"

#include <optional>

#include "server/api/tensor_converter.h"

namespace ridgeline::api {
namespace {

using kernels::attention::Algorithm;

v1::Algorithm AlgorithmOf(std::optional<Algorithm> algorithm) {
  if (!algorithm.has_value()) return v1::ALGORITHM_UNSPECIFIED;
  return *algorithm == Algorithm::kStandard ? v1::ALGORITHM_STANDARD : v1::ALGORITHM_FLASH;
}

v1::Bound BoundOf(engine::Bound bound) {
  switch (bound) {
    case engine::Bound::kMemory:
      return v1::BOUND_MEMORY;
    case engine::Bound::kCompute:
      return v1::BOUND_COMPUTE;
    case engine::Bound::kUnknown:
      break;
  }
  return v1::BOUND_UNSPECIFIED;
}

}  // namespace

v1::ExecutionReport ToMessage(const engine::ExecutionReport& report) {
  v1::ExecutionReport message;
  message.set_device(report.device);
  message.set_kernel(report.kernel);
  message.set_kernel_reason(report.kernel_reason);
  message.set_algorithm(AlgorithmOf(report.algorithm));
  message.set_batch_requests(report.batch_requests);
  *message.mutable_queue_time() = ToMessage(report.queue_time);
  *message.mutable_upload_time() = ToMessage(report.upload_time);
  *message.mutable_kernel_time() = ToMessage(report.kernel_time);
  *message.mutable_download_time() = ToMessage(report.download_time);
  message.set_flops(report.flops);
  message.set_bytes(report.bytes);
  message.set_flops_per_second(report.flops_per_second);
  message.set_bytes_per_second(report.bytes_per_second);
  message.set_arithmetic_intensity(report.arithmetic_intensity);
  message.set_bound(BoundOf(report.bound));
  message.set_roof_fraction(report.roof_fraction);
  message.set_workspace_bytes(report.workspace_bytes);
  for (const engine::KernelPhase& phase : report.kernel_phases) {
    v1::KernelPhase& added = *message.add_kernel_phases();
    added.set_name(phase.name);
    *added.mutable_time() = ToMessage(phase.time);
  }
  return message;
}

}  // namespace ridgeline::api
