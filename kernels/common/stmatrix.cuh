// stmatrix: 8x8 matrices of 16-bit elements from fragments to shared memory (sm_90). PTX ISA, "Warp-level matrix store
// instruction: stmatrix".
#pragma once

#include <cstdint>

namespace ridgeline::kernels {

// Four matrices: lanes 8i to 8i+7 name the rows of matrix i (16 bytes each); every lane gives row lane/4, elements 2*(lane%4)
// and the next, of each.
__device__ __forceinline__ void StMatrixX4(std::uint32_t row_address, const std::uint32_t (&fragment)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(row_address), "r"(fragment[0]),
               "r"(fragment[1]), "r"(fragment[2]), "r"(fragment[3])
               : "memory");
}

}  // namespace ridgeline::kernels
