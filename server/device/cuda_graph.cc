#include "server/device/cuda_graph.h"

#include <utility>

#include "server/base/status_macros.h"

namespace ridgeline::device {

CudaGraph::~CudaGraph() {
  if (executable_ != nullptr) context_.CallOrLog("cudaGraphExecDestroy", [this] { return cudaGraphExecDestroy(executable_); });
}

absl::Status CudaGraph::Capture(const std::vector<kernels::microbench::Workload>& workloads,
                                const kernels::microbench::CudaSite& site) {
  // Other threads go on calling CUDA: only this one's calls are watched.
  RIDGELINE_RETURN_IF_ERROR(
      RIDGELINE_CUDA_CALL(context_, cudaStreamBeginCapture, site.stream, cudaStreamCaptureModeThreadLocal));
  absl::Status status;
  for (const kernels::microbench::Workload& workload : workloads) {
    status.Update(RIDGELINE_CUDA_CALL(context_, kernels::microbench::LaunchWorkload, workload, site));
  }
  // Ends in any case: a stream that is left capturing runs nothing.
  cudaGraph_t graph = nullptr;
  status.Update(RIDGELINE_CUDA_CALL(context_, cudaStreamEndCapture, site.stream, &graph));
  if (status.ok()) status = RIDGELINE_CUDA_CALL(context_, cudaGraphInstantiate, &executable_, graph, 0);
  if (graph != nullptr) context_.CallOrLog("cudaGraphDestroy", [graph] { return cudaGraphDestroy(graph); });
  return status;
}

absl::Status CudaGraph::Launch(cudaStream_t stream) {
  return RIDGELINE_CUDA_CALL(context_, cudaGraphLaunch, executable_, stream);
}

}  // namespace ridgeline::device
