#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/saturating.h"
#include "kernels/common/simd_fixed_targets.h"
#include "kernels/microbench/microbench.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/microbench/gemm_cpu.cc"  // this file, once for each SIMD target
#include "hwy/foreach_target.h"                              // must come before highway.h
#include "hwy/highway.h"
#include "kernels/common/float16-inl.h"
#include "kernels/common/simd_multiply-inl.h"
#include "kernels/common/simd_transpose-inl.h"

// Blocked as usual (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008):
//
//   task: one block of C, kBlockRows x kBlockColumns          for each kBlockSteps of k:
//     A block, float32 [rows, steps]      ── L2 ─┐               broadcast
//     B block, [panels][steps, panel columns] ──L1┴─► C += A · Bᵀ  by tiles in registers

#ifndef RIDGELINE_KERNELS_MICROBENCH_GEMM_CPU_ONCE
#define RIDGELINE_KERNELS_MICROBENCH_GEMM_CPU_ONCE
namespace ridgeline::kernels::microbench {

inline constexpr std::int64_t kBlockRows = 384;
inline constexpr std::int64_t kBlockColumns = 480;
inline constexpr std::int64_t kBlockSteps = 256;

struct GemmProblem {
  DataType type;
  std::int64_t m, n, k;
  const void* a;
  const void* b;
  float* c;
};

// Block [begin, end) of one dimension.
struct Extent {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

// Floats of one slot: a block of A, then one of B.
inline constexpr std::int64_t kSlotFloats = (kBlockRows + kBlockColumns) * kBlockSteps;

}  // namespace ridgeline::kernels::microbench
#endif  // RIDGELINE_KERNELS_MICROBENCH_GEMM_CPU_ONCE

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::microbench::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using namespace kernels::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): the same target's primitives

using Lanes = hn::ScalableTag<float>;
using Vector = hn::Vec<Lanes>;
constexpr std::int64_t kLanes = hn::MaxLanes(Lanes());
constexpr std::int64_t kPanelColumns = kTileVectors * kLanes;
static_assert(kBlockRows % kTileRows == 0, "a block of A is whole tiles");
static_assert(kBlockColumns % kPanelColumns == 0, "a block of B is whole panels");

// One vector, or the `count` elements that are left of a row; beyond them zeros. `count` is at least 1.
template <typename T>
HWY_INLINE Vector LoadUpTo(const T* from, std::int64_t count) {
  const Lanes d;
  if (kLanes == 1 || count >= kLanes) return LoadFloat32(d, from);
  return LoadFloat32N(d, from, static_cast<std::size_t>(count));
}

HWY_INLINE void StoreUpTo(Vector v, float* to, std::int64_t count) {
  const Lanes d;
  if (kLanes == 1 || count >= kLanes) return hn::StoreU(v, d, to);
  StoreFloat32N(v, d, to, static_cast<std::size_t>(count));
}

// A's rows and steps as float32 [rows rounded up to tiles, steps]; zeros beyond the last row.
template <typename T>
void PackA(const T* a, std::int64_t k, Extent rows, Extent steps, float* packed) {
  for (std::int64_t row = rows.begin; row < rows.end; ++row, packed += steps.size()) {
    const T* from = a + row * k + steps.begin;
    for (std::int64_t s = 0; s < steps.size(); s += kLanes) {
      const std::int64_t left = steps.size() - s;
      StoreUpTo(LoadUpTo(from + s, left), packed + s, left);
    }
  }
  const std::int64_t missing = (kTileRows - rows.size() % kTileRows) % kTileRows;
  std::fill_n(packed, missing * steps.size(), 0.0f);
}

// B's rows and steps, transposed, as panels [steps, kPanelColumns]. Columns beyond the last repeat it.
template <typename T>
void PackB(const T* b, std::int64_t k, Extent columns, Extent steps, float* packed) {
  const Lanes d;
  for (std::int64_t column = 0; column < columns.size(); column += kLanes) {
    float* const panel = packed + column / kPanelColumns * kPanelColumns * steps.size() + column % kPanelColumns;
    const T* rows[kLanes];
    for (std::int64_t i = 0; i < kLanes; ++i) {
      rows[i] = b + std::min(columns.begin + column + i, columns.end - 1) * k + steps.begin;
    }
    for (std::int64_t s = 0; s < steps.size(); s += kLanes) {
      const std::int64_t count = std::min(kLanes, steps.size() - s);
      Vector m[kLanes];
      for (std::int64_t i = 0; i < kLanes; ++i) m[i] = LoadUpTo(rows[i] + s, count);
      Transpose(d, m);
      for (std::int64_t i = 0; i < count; ++i) hn::StoreU(m[i], d, panel + (s + i) * kPanelColumns);
    }
  }
}

// The last rows and columns, where a whole tile does not fit into C, go through a tile of their own.
template <Update kUpdate>
void MultiplyEdge(std::int64_t steps, const float* a, const float* b, float* c, std::int64_t ldc, std::int64_t rows,
                  std::int64_t columns) {
  HWY_ALIGN float tile[kTileRows * kPanelColumns];
  MultiplyTile<Update::kOverwrite, kTileVectors>(Lanes(), steps, {a, steps, 1}, {b, kPanelColumns}, {tile, kPanelColumns},
                                                 nullptr);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      float& to = c[row * ldc + column];
      to = tile[row * kPanelColumns + column] + (kUpdate == Update::kAdd ? to : 0);
    }
  }
}

template <Update kUpdate>
void MultiplyBlock(const GemmProblem& problem, Extent rows, Extent columns, std::int64_t steps, const float* a,
                   const float* b) {
  for (std::int64_t column = 0; column < columns.size(); column += kPanelColumns) {
    const float* const panel = b + column * steps;
    const std::int64_t num_columns = std::min(kPanelColumns, columns.size() - column);
    float* const c = problem.c + rows.begin * problem.n + columns.begin + column;
    for (std::int64_t row = 0; row < rows.size(); row += kTileRows) {
      const std::int64_t num_rows = std::min(kTileRows, rows.size() - row);
      if (num_rows == kTileRows && num_columns == kPanelColumns) {
        MultiplyTile<kUpdate, kTileVectors>(Lanes(), steps, {a + row * steps, steps, 1}, {panel, kPanelColumns},
                                            {c + row * problem.n, problem.n}, nullptr);
      } else {
        MultiplyEdge<kUpdate>(steps, a + row * steps, panel, c + row * problem.n, problem.n, num_rows, num_columns);
      }
    }
  }
}

template <typename T>
void MultiplyTyped(const GemmProblem& problem, Extent rows, Extent columns, float* scratch) {
  float* const a = scratch;
  float* const b = scratch + kBlockRows * kBlockSteps;
  for (std::int64_t begin = 0; begin < problem.k; begin += kBlockSteps) {
    const Extent steps = {begin, std::min(begin + kBlockSteps, problem.k)};
    PackA(static_cast<const T*>(problem.a), problem.k, rows, steps, a);
    PackB(static_cast<const T*>(problem.b), problem.k, columns, steps, b);
    if (begin == 0) {
      MultiplyBlock<Update::kOverwrite>(problem, rows, columns, steps.size(), a, b);
    } else {
      MultiplyBlock<Update::kAdd>(problem, rows, columns, steps.size(), a, b);
    }
  }
}

}  // namespace

void Multiply(const GemmProblem& problem, Extent rows, Extent columns, float* scratch) {
  switch (problem.type) {
    case DataType::kFloat16:
      return MultiplyTyped<Float16>(problem, rows, columns, scratch);
    case DataType::kBFloat16:
      return MultiplyTyped<BFloat16>(problem, rows, columns, scratch);
    default:
      return MultiplyTyped<float>(problem, rows, columns, scratch);
  }
}

}  // namespace ridgeline::kernels::microbench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::kernels::microbench {

HWY_EXPORT(Multiply);

namespace {

// Blocks of one dimension, of even size but for rounding to `multiple`, so that a wide tile works on each but the last.
class Blocks {
 public:
  Blocks(std::int64_t size, std::int64_t most, std::int64_t multiple) : size_(size) {
    if (size == 0) return;
    const std::int64_t least_blocks = (size - 1) / most + 1;
    block_ = ((size - 1) / least_blocks / multiple + 1) * multiple;
    count_ = (size - 1) / block_ + 1;
  }
  std::int64_t count() const { return count_; }
  Extent operator[](std::int64_t i) const { return {i * block_, std::min((i + 1) * block_, size_)}; }

 private:
  std::int64_t size_;
  std::int64_t block_ = 1;
  std::int64_t count_ = 0;
};

}  // namespace

void GemmOnCpu(DataType type, std::int64_t m, std::int64_t n, std::int64_t k, const void* a, const void* b, float* c,
               void* workspace, Executor& executor) {
  if (k == 0) {
    std::fill_n(c, m * n, 0.0f);
    return;
  }
  const GemmProblem problem = {type, m, n, k, a, b, c};
  const Blocks rows(m, kBlockRows, 8), columns(n, kBlockColumns, 48);
  executor.ParallelFor(rows.count() * columns.count(), [&](std::int64_t task, int slot) {
    float* const scratch = static_cast<float*>(workspace) + slot * kSlotFloats;
    HWY_DYNAMIC_DISPATCH(Multiply)(problem, rows[task / columns.count()], columns[task % columns.count()], scratch);
  });
}

std::int64_t GemmWorkspaceBytesOnCpu(DataType /*type*/, std::int64_t /*m*/, std::int64_t /*n*/, std::int64_t /*k*/,
                                     int num_slots) {
  return SaturatingMultiply({kSlotFloats, std::int64_t{sizeof(float)}, num_slots});
}

}  // namespace ridgeline::kernels::microbench
#endif  // HWY_ONCE
