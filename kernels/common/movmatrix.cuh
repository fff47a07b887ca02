// movmatrix: transposes an 8x8 matrix of 16-bit elements that lies in a warp's registers (sm_75 and newer). PTX ISA,
// "Warp-level matrix transpose instruction: movmatrix".
#pragma once

#include <cstdint>

namespace ridgeline::kernels {

// Lane i holds row i / 4, elements 2 * (i % 4) and the next, before and after.
__device__ __forceinline__ std::uint32_t MovMatrixTransposed(std::uint32_t fragment) {
  std::uint32_t transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(transposed) : "r"(fragment));
  return transposed;
}

}  // namespace ridgeline::kernels
