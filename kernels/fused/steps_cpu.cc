// The elementary steps of the unfused mode: a task takes rows.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>

#include "kernels/common/data_type.h"
#include "kernels/common/rounding.h"
#include "kernels/fused/dropout.h"
#include "kernels/fused/fused_cpu.h"
#include "kernels/fused/rope_angle.h"
#include "kernels/fused/steps.h"
#include "kernels/fused/token_position.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused/steps_cpu.cc"  // this file, once for each SIMD target
#include "hwy/foreach_target.h"                          // must come before highway.h

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/fused/activations-inl.h"
#include "kernels/fused/dropout-inl.h"
#include "kernels/fused/spans-inl.h"

#ifndef RIDGELINE_KERNELS_FUSED_STEPS_CPU_ONCE_
#define RIDGELINE_KERNELS_FUSED_STEPS_CPU_ONCE_
namespace ridgeline::kernels::fused {

// A step's operands as rows of equal width.
struct StepRows {
  StepKind kind;
  DataType data_type;
  const void* a;
  const void* b;
  Extent b_extent;
  void* result;
  std::int64_t num_rows;
  std::int64_t columns;
  std::int64_t rows_per_b;  // kPerHead: heads of a token, which share a row of b
  float scale, shift;
  RopeOptions rope;
};

}  // namespace ridgeline::kernels::fused
#endif  // RIDGELINE_KERNELS_FUSED_STEPS_CPU_ONCE_

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::fused::HWY_NAMESPACE {
namespace {

HWY_INLINE FloatVec Apply(const StepRows& step, FloatVec a, FloatVec b) {
  switch (step.kind) {
    case StepKind::kAdd:
      return hn::Add(a, b);
    case StepKind::kSubtract:
      return hn::Sub(a, b);
    case StepKind::kMultiply:
      return hn::Mul(a, b);
    case StepKind::kDivide:
      return hn::Div(a, b);
    case StepKind::kAffine:
      return hn::MulAdd(a, hn::Set(kTag, step.scale), hn::Set(kTag, step.shift));
    case StepKind::kExp:
      return kernels::HWY_NAMESPACE::Exp(kTag, a);
    case StepKind::kErf:
      return Erf(kTag, a);
    case StepKind::kTanh:
      return kernels::HWY_NAMESPACE::Tanh(kTag, a);
    case StepKind::kSigmoid:
      return Sigmoid(kTag, a);
    default:  // kApplyMask
      return hn::IfThenElseZero(hn::Ne(b, hn::Zero(kTag)), hn::Mul(a, hn::Set(kTag, step.scale)));
  }
}

// The second operand of elements [column, column + count) of a row.
template <typename T>
HWY_INLINE FloatVec Operand(const StepRows& step, std::int64_t row, std::int64_t column, std::size_t count) {
  switch (step.b_extent) {
    case Extent::kNone:
      return hn::Zero(kTag);
    case Extent::kColumns:
      return LoadUpTo(static_cast<const T*>(step.b) + column, count);
    case Extent::kPerRow:
      return hn::Set(kTag, static_cast<const float*>(step.b)[row]);
    case Extent::kPerHead:
      return LoadUpTo(static_cast<const T*>(step.b) + row / step.rows_per_b * step.columns + column, count);
    case Extent::kMask: {
      HWY_ALIGN float mask[hn::MaxLanes(kTag)] = {};
      const std::uint8_t* const from = static_cast<const std::uint8_t*>(step.b) + row * step.columns + column;
      std::copy_n(from, count, mask);
      return hn::Load(kTag, mask);
    }
    default:
      return LoadUpTo(static_cast<const T*>(step.b) + row * step.columns + column, count);
  }
}

template <typename T>
void ApplyToRow(const StepRows& step, std::int64_t row) {
  const T* const a = static_cast<const T*>(step.a) + row * step.columns;
  T* const result = static_cast<T*>(step.result) + row * step.columns;
  ForEachVector(step.columns, [&](std::int64_t i, std::size_t count) HWY_ATTR {
    StoreUpTo(Apply(step, LoadUpTo(a + i, count), Operand<T>(step, row, i, count)), result + i, count);
  });
}

template <typename T>
float Largest(const T* row, std::int64_t columns) {
  constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  FloatVec largest = hn::Set(kTag, kMinusInfinity);
  ForEachVector(columns, [&](std::int64_t i, std::size_t count) HWY_ATTR {
    const FloatVec x = KeepFirst(LoadUpTo(row + i, count), count, kMinusInfinity);
    largest = hn::IfThenElse(hn::Gt(x, largest), x, largest);
  });
  return hn::GetLane(hn::MaxOfLanes(kTag, largest));
}

template <typename T>
float Reduce(const StepRows& step, std::int64_t row) {
  const T* const a = static_cast<const T*>(step.a) + row * step.columns;
  if (step.kind == StepKind::kRowMax) return Largest(a, step.columns);
  const bool squares = step.kind == StepKind::kRowMeanSquare;
  const double sum = SumOfTerms(step.columns, [&](std::int64_t i, std::size_t count) HWY_ATTR {
    const FloatVec x = LoadUpTo(a + i, count);
    return squares ? hn::Mul(x, x) : x;
  });
  return static_cast<float>(step.kind == StepKind::kRowSum ? sum : sum / static_cast<double>(step.columns));
}

template <typename T>
void TurnRow(const StepRows& step, std::int64_t row) {
  const float* const revolutions = static_cast<const float*>(step.a) + row * step.columns;
  T* const result = static_cast<T*>(step.result) + row * step.columns;
  const FloatVec full_turn = hn::Set(kTag, static_cast<float>(2 * std::numbers::pi));
  ForEachVector(step.columns, [&](std::int64_t i, std::size_t count) HWY_ATTR {
    const FloatVec angle = hn::Mul(LoadUpTo(revolutions + i, count), full_turn);
    StoreUpTo(step.kind == StepKind::kSine ? hn::Sin(kTag, angle) : hn::Cos(kTag, angle), result + i, count);
  });
}

// A row is a head.
template <typename T>
void SwapRow(const StepRows& step, std::int64_t row) {
  const T* const head = static_cast<const T*>(step.a) + row * step.columns;
  T* const result = static_cast<T*>(step.result) + row * step.columns;
  const auto rotary_dim = static_cast<int>(step.rope.rotary_dim);
  const int reach = step.rope.layout == RopeLayout::kInterleaved ? 1 : rotary_dim / 2;
  const auto load = [head](int i) HWY_ATTR { return LoadFloat32N(kTag, head + i, 1); };
  for (int i = 0; i < static_cast<int>(step.columns); ++i) {
    FloatVec swapped = hn::Zero(kTag);
    if (i < rotary_dim) {
      swapped = PairOf(step.rope.layout, rotary_dim, i).is_second ? load(i - reach) : hn::Neg(load(i + reach));
    }
    StoreFloat32N(swapped, kTag, result + i, 1);
  }
}

template <typename T>
void RunTyped(const StepRows& step, std::int64_t row_begin, std::int64_t row_end) {
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    switch (step.kind) {
      case StepKind::kRowMean:
      case StepKind::kRowMeanSquare:
      case StepKind::kRowMax:
      case StepKind::kRowSum:
        static_cast<float*>(step.result)[row] = Reduce<T>(step, row);
        break;
      case StepKind::kSine:
      case StepKind::kCosine:
        TurnRow<T>(step, row);
        break;
      case StepKind::kRopeSwap:
        SwapRow<T>(step, row);
        break;
      default:
        ApplyToRow<T>(step, row);
    }
  }
}

}  // namespace

void RunStepRows(const StepRows& step, std::int64_t row_begin, std::int64_t row_end) {
  switch (step.data_type) {
    case DataType::kFloat16:
      return RunTyped<Float16>(step, row_begin, row_end);
    case DataType::kBFloat16:
      return RunTyped<BFloat16>(step, row_begin, row_end);
    default:
      return RunTyped<float>(step, row_begin, row_end);
  }
}

void DrawMaskRange(const DropoutRule& rule, std::int64_t begin, std::int64_t end, std::uint8_t* mask) {
  DropoutBits bits;
  for (std::int64_t first = begin; first < end; first += DropoutBits::kMostElems) {
    const std::int64_t count = std::min(DropoutBits::kMostElems, end - first);
    bits.Draw(rule, first, count);
    bits.StoreMask(rule, count, mask + first);
  }
}

}  // namespace ridgeline::kernels::fused::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::kernels::fused {
namespace {

HWY_EXPORT(RunStepRows);
HWY_EXPORT(DrawMaskRange);

// Calls body(begin, end) for ranges of [0, count), `width` elements each.
template <typename Body>
void ForEachRange(std::int64_t count, std::int64_t width, Executor& executor, const Body& body) {
  const std::int64_t range = std::max<std::int64_t>(1, kTaskElems / width);
  executor.ParallelFor(CeilDivide(count, range), [&](std::int64_t task_idx, int /*slot*/) {
    body(task_idx * range, std::min(count, (task_idx + 1) * range));
  });
}

StepRows RowsOf(const FusedParams& params, const Step& step) {
  const FusedShape& shape = params.shape;
  StepRows rows = {.kind = step.kind,
                   .data_type = shape.data_type,
                   .a = Address(params, step.a),
                   .b = Address(params, step.b),
                   .b_extent = step.b.extent,
                   .result = Address(params, step.result),
                   .num_rows = shape.num_rows,
                   .columns = step.a.extent == Extent::kKeys ? shape.key_elems : shape.row_elems,
                   .rows_per_b = 1,
                   .scale = step.scale,
                   .shift = step.shift,
                   .rope = shape.rope};
  const bool is_per_head = step.b.extent == Extent::kPerHead || step.kind == StepKind::kRopeSwap;
  if (is_per_head) {
    rows.rows_per_b = rows.columns / shape.rope.head_dim;
    rows.num_rows *= rows.rows_per_b;
  }
  if (is_per_head || step.a.extent == Extent::kAngles) rows.columns = shape.rope.head_dim;
  return rows;
}

void DrawMask(const FusedParams& params, const Step& step, Executor& executor) {
  const DropoutRule rule = RuleOf(params.shape.dropout);
  auto* const mask = static_cast<std::uint8_t*>(Address(params, step.result));
  ForEachRange(ElementsOf(params.shape, Extent::kMask), 1, executor, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(DrawMaskRange)(rule, begin, end, mask);
  });
}

void FillRevolutions(const FusedParams& params, const Step& step, Executor& executor) {
  const RopeOptions& rope = params.shape.rope;
  const RopeRates rates = RatesOf(rope);
  auto* const result = static_cast<float*>(Address(params, step.result));
  ForEachRange(params.shape.num_rows, rope.head_dim, executor, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t position = PositionOnCpu(params, row);
      float* const angles = result + row * rope.head_dim;
      std::fill_n(angles, rope.head_dim, 0.0f);
      for (int i = 0; i < static_cast<int>(rope.rotary_dim); ++i) {
        angles[i] = rates.Revolutions(position, PairOf(rope.layout, static_cast<int>(rope.rotary_dim), i).pair);
      }
    }
  });
}

void TakeRoots(const FusedParams& params, const Step& step) {
  const auto* const squares = static_cast<const float*>(Address(params, step.a));
  auto* const roots = static_cast<float*>(Address(params, step.result));
  for (std::int64_t row = 0; row < params.shape.num_rows; ++row) roots[row] = 1 / std::sqrt(squares[row] + step.shift);
}

}  // namespace

void RunStepOnCpu(const FusedParams& params, const Step& step, Executor& executor) {
  switch (step.kind) {
    case StepKind::kDropoutMask:
      return DrawMask(params, step, executor);
    case StepKind::kRopeRevolutions:
      return FillRevolutions(params, step, executor);
    case StepKind::kRsqrt:
      return TakeRoots(params, step);
    case StepKind::kAppend: {
      kv_cache::AppendParams append = params.append;
      append.key = Address(params, step.a);
      return kv_cache::AppendOnCpu(append, executor);
    }
    default: {
      const StepRows rows = RowsOf(params, step);
      ForEachRange(rows.num_rows, rows.columns, executor, [&](std::int64_t begin, std::int64_t end) {
        HWY_DYNAMIC_DISPATCH(RunStepRows)(rows, begin, end);
      });
    }
  }
}

}  // namespace ridgeline::kernels::fused
#endif  // HWY_ONCE
