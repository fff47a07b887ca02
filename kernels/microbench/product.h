// A matrix product by the library of the device, OpenBLAS or cuBLAS, with either operand transposed: what training needs.
#pragma once

#include <cstdint>

#include "kernels/common/data_type.h"
#include "kernels/common/executor.h"

namespace ridgeline::kernels::microbench {

// C[m,n] = A · B, row-major, summed in float32 and rounded to `type` once. The CPU has float32 alone.
struct ProductParams {
  DataType type;  // of all three
  bool transpose_a;
  bool transpose_b;
  std::int64_t m, n, k;  // at least 1, below 2^31
  const void* a;         // [m, k]; transposed, [k, m]
  const void* b;         // [k, n]; transposed, [n, k]
  void* c;               // [m, n]
};

void RunOnCpu(const ProductParams& params, Executor& executor);

}  // namespace ridgeline::kernels::microbench
