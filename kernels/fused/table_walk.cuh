// A thread an element, for tables that are small beside the tensors.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/rounding.h"

namespace ridgeline::kernels::fused {

inline constexpr int kTableThreads = 256;

__device__ __forceinline__ std::int64_t TableElement() { return std::int64_t{blockIdx.x} * kTableThreads + threadIdx.x; }

inline LaunchShape TableShape(std::int64_t count) {
  return {dim3(static_cast<unsigned>(CeilDivide(count, kTableThreads))), dim3(kTableThreads)};
}

}  // namespace ridgeline::kernels::fused
