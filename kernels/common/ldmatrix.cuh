// ldmatrix: 8x8 matrices of 16-bit elements from shared memory to the fragments that mma reads. PTX ISA, "Warp-level matrix
// load instruction: ldmatrix".
#pragma once

#include <cstdint>

namespace ridgeline::kernels {

// Four matrices: lanes 8i to 8i+7 name the rows of matrix i (16 bytes each); every lane gets row lane/4, elements 2*(lane%4)
// and the next, of each.
__device__ __forceinline__ void LdMatrixX4(std::uint32_t (&fragment)[4], std::uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(row_address)
               : "memory");
}

// The same of the transposed matrices.
__device__ __forceinline__ void LdMatrixX4Transposed(std::uint32_t (&fragment)[4], std::uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(row_address)
               : "memory");
}

}  // namespace ridgeline::kernels
