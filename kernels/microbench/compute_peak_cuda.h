// The part of compute_peak that is built for Hopper chips alone.
#pragma once

#include "kernels/common/cuda_status.h"
#include "kernels/microbench/compute_peak.h"
#include "kernels/microbench/workload_cuda.h"

namespace ridgeline::kernels::microbench {

CudaStatus LaunchWgmmaPeak(const MatrixPeakParams& params, const CudaSite& site);

}  // namespace ridgeline::kernels::microbench
