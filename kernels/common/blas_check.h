// OpenBLAS picks its code by processor at load time; old builds compute wrong products on some newer processors.
#pragma once

#include <cstdint>
#include <string>

namespace ridgeline::kernels {

// C[m,n] = alpha * A[m,k] · B, row-major, B[k,n] or, transposed, B[n,k]. The signature of the products that standard attention
// uses.
using SgemmFunction = void (*)(bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
                               std::int64_t lda, const float* b, std::int64_t ldb, float* c, std::int64_t ldc);

// OpenBLAS's sgemm on the calling thread alone, split where a dimension exceeds its 32-bit integers. C is written, never read.
void OpenBlasSgemm(bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
                   std::int64_t lda, const float* b, std::int64_t ldb, float* c, std::int64_t ldc);

// OpenBLAS starts with a thread for every core; ours come from the Executor, and each multiplies its own block. OpenBlasSgemm
// calls this itself.
void UseCallingThreadAloneForBlas();

// The processor that OpenBLAS believes it runs on, e.g. "Haswell".
std::string OpenBlasCore();

// Multiplies matrices of sizes around the tile edges of known kernels (below, at and above) and compares with plain loops in
// double. Returns an empty string if every element is within the bound for its sum's length, else what was wrong: size,
// element, got, want, bound. Takes under 50 ms.
std::string CheckSgemm(SgemmFunction sgemm);

}  // namespace ridgeline::kernels
