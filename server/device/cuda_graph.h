// Graphs of the benchmarks' kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/microbench/workload_cuda.h"
#include "server/device/cuda_context.h"
#include "server/device/device.h"

namespace ridgeline::device {

class CudaGraph final : public Graph {
 public:
  explicit CudaGraph(CudaContext& context) : context_(context) {}
  ~CudaGraph() override;

  // Records what the workloads launch, without running it. Once, by one thread, before any launch.
  absl::Status Capture(const std::vector<kernels::microbench::Workload>& workloads, const kernels::microbench::CudaSite& site);
  absl::Status Launch(cudaStream_t stream);

 private:
  CudaContext& context_;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace ridgeline::device
