// The rungs of the ladder that have files of their own.
#pragma once

#include "kernels/common/cuda_status.h"
#include "kernels/microbench/gemm_ladder.h"
#include "kernels/microbench/workload_cuda.h"

namespace ridgeline::kernels::microbench {

CudaStatus LaunchMmaGemm(const CudaGemmRungParams& params, const CudaSite& site);

// WgmmaRungFits; built for Hopper chips alone.
CudaStatus LaunchWgmmaGemm(const CudaGemmRungParams& params, const CudaSite& site);

}  // namespace ridgeline::kernels::microbench
