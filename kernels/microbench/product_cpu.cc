#include <cblas.h>

#include <algorithm>
#include <cstdint>

#include "kernels/common/blas_check.h"
#include "kernels/common/rounding.h"
#include "kernels/microbench/product.h"

namespace ridgeline::kernels::microbench {
namespace {

// Of C, one task's: large beside what the library packs anew for each, whatever the number of threads.
constexpr std::int64_t kBlockRows = 128, kBlockColumns = 512;

}  // namespace

void RunOnCpu(const ProductParams& params, Executor& executor) {
  UseCallingThreadAloneForBlas();
  const auto* const a = static_cast<const float*>(params.a);
  const auto* const b = static_cast<const float*>(params.b);
  auto* const c = static_cast<float*>(params.c);
  const std::int64_t lda = params.transpose_a ? params.m : params.k;
  const std::int64_t ldb = params.transpose_b ? params.k : params.n;
  const std::int64_t column_blocks = CeilDivide(params.n, kBlockColumns);
  executor.ParallelFor(CeilDivide(params.m, kBlockRows) * column_blocks, [&](std::int64_t task, int /*slot*/) {
    const std::int64_t row = task / column_blocks * kBlockRows, column = task % column_blocks * kBlockColumns;
    cblas_sgemm(CblasRowMajor, params.transpose_a ? CblasTrans : CblasNoTrans, params.transpose_b ? CblasTrans : CblasNoTrans,
                static_cast<blasint>(std::min(kBlockRows, params.m - row)),
                static_cast<blasint>(std::min(kBlockColumns, params.n - column)), static_cast<blasint>(params.k), 1,
                a + (params.transpose_a ? row : row * lda), static_cast<blasint>(lda),
                b + (params.transpose_b ? column * ldb : column), static_cast<blasint>(ldb), 0, c + row * params.n + column,
                static_cast<blasint>(params.n));
  });
}

}  // namespace ridgeline::kernels::microbench
