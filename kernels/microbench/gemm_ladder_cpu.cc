#include <algorithm>
#include <cstdint>

#include "kernels/common/blas_check.h"
#include "kernels/common/data_type.h"
#include "kernels/microbench/gemm_ladder.h"
#include "kernels/microbench/microbench.h"

namespace ridgeline::kernels::microbench {
namespace {

constexpr std::int64_t kRowsOfTask = 32;
constexpr std::int64_t kLibraryRowsOfTask = 128;  // a library packs B anew for each call
constexpr std::int64_t kBlockSteps = 128;         // with 256 columns: 128 KiB of B
constexpr std::int64_t kBlockColumns = 256;

struct Rows {
  std::int64_t begin, end;
};

void MultiplyNaively(const GemmRungParams& p, Rows rows) {
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < p.k; ++k) sum += p.a[i * p.k + k] * p.b[k * p.n + j];
      p.c[i * p.n + j] = sum;
    }
  }
}

// C[rows, columns] += A[rows, steps] · B[steps, columns]
void AddProduct(const GemmRungParams& p, Rows rows, Rows steps, Rows columns) {
  for (std::int64_t i = rows.begin; i < rows.end; ++i) {
    float* const c = p.c + i * p.n;
    for (std::int64_t k = steps.begin; k < steps.end; ++k) {
      const float a = p.a[i * p.k + k];
      const float* const b = p.b + k * p.n;
      for (std::int64_t j = columns.begin; j < columns.end; ++j) c[j] += a * b[j];
    }
  }
}

void MultiplyReordered(const GemmRungParams& p, Rows rows) {
  std::fill(p.c + rows.begin * p.n, p.c + rows.end * p.n, 0.0f);
  AddProduct(p, rows, {0, p.k}, {0, p.n});
}

void MultiplyBlocked(const GemmRungParams& p, Rows rows) {
  std::fill(p.c + rows.begin * p.n, p.c + rows.end * p.n, 0.0f);
  for (std::int64_t j = 0; j < p.n; j += kBlockColumns) {
    for (std::int64_t k = 0; k < p.k; k += kBlockSteps) {
      AddProduct(p, rows, {k, std::min(k + kBlockSteps, p.k)}, {j, std::min(j + kBlockColumns, p.n)});
    }
  }
}

void MultiplyByLibrary(const GemmRungParams& p, Rows rows) {
  OpenBlasSgemm(false, rows.end - rows.begin, p.n, p.k, 1, p.a + rows.begin * p.k, p.k, p.b, p.n, p.c + rows.begin * p.n, p.n);
}

void MultiplyRows(const GemmRungParams& params, Rows rows) {
  switch (params.rung) {
    case GemmRung::kNaive:
      return MultiplyNaively(params, rows);
    case GemmRung::kReordered:
      return MultiplyReordered(params, rows);
    case GemmRung::kBlocked:
      return MultiplyBlocked(params, rows);
    default:
      return MultiplyByLibrary(params, rows);
  }
}

}  // namespace

void RunOnCpu(const GemmRungParams& params, Executor& executor) {
  if (params.rung == GemmRung::kTiled) {
    return GemmOnCpu(DataType::kFloat32, params.m, params.n, params.k, params.a, params.b_transposed, params.c,
                     params.workspace, executor);
  }
  const std::int64_t most_rows = params.rung == GemmRung::kLibrary ? kLibraryRowsOfTask : kRowsOfTask;
  executor.ParallelFor((params.m + most_rows - 1) / most_rows, [&](std::int64_t task, int /*slot*/) {
    MultiplyRows(params, {task * most_rows, std::min((task + 1) * most_rows, params.m)});
  });
}

}  // namespace ridgeline::kernels::microbench
