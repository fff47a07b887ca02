// Launches of the CUDA kernels by element type: a translation unit instantiates them for one type. T: float, __half or
// __nv_bfloat16.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/fused/fused.h"
#include "kernels/fused/row_schedule.h"
#include "kernels/fused/steps.h"

namespace ridgeline::kernels::fused {

// Fused operations that reduce rows.
template <typename T>
cudaError_t LaunchRows(const FusedParams& params, const CudaLimits& limits, cudaStream_t stream);

// Fused operations that take elements one by one.
template <typename T>
cudaError_t LaunchPointwise(const FusedParams& params, cudaStream_t stream);

// kRope and kRopeAppend, fused.
template <typename T>
cudaError_t LaunchRope(const FusedParams& params, cudaStream_t stream);

// One step of the unfused chain. Untyped: kRsqrt, kDropoutMask, kRopeRevolutions and kAppend, which know no element type;
// typed: the others.
template <typename T>
cudaError_t LaunchTypedStep(const FusedParams& params, const Step& step, cudaStream_t stream);
cudaError_t LaunchUntypedStep(const FusedParams& params, const Step& step, cudaStream_t stream);

// How far an array begins behind a multiple of 16 bytes.
inline std::uintptr_t DistanceFromWord(const void* array) { return reinterpret_cast<std::uintptr_t>(array) % 16; }

}  // namespace ridgeline::kernels::fused
