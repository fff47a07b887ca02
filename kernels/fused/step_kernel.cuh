// The elementary steps of the unfused mode: a kernel a kind of walk, and within it the function by a switch that all threads
// take alike.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/fused/elementwise_kernel.cuh"
#include "kernels/fused/rope_angle.h"
#include "kernels/fused/row_team.cuh"
#include "kernels/fused/steps.h"
#include "kernels/fused/table_walk.cuh"
#include "kernels/fused/vectors.cuh"

namespace ridgeline::kernels::fused {

// Where the second operand of an element lies.
struct Operand {
  const void* data;
  Extent extent;
  int head_dim;  // kPerHead
};

struct ElementwiseArguments {
  Elements elements;
  StepKind kind;
  const void* a;
  Operand b;
  bool b_is_full;  // as a, and of its type
  void* result;
  float scale, shift;
};

// The second operand at `column` of `row`, where it is not a whole tensor like the first.
template <typename T>
__device__ __forceinline__ float ReadOperand(const Operand& operand, std::int64_t row, std::int64_t column,
                                             std::int64_t columns) {
  switch (operand.extent) {
    case Extent::kColumns:
      return ToFloat(static_cast<const T*>(operand.data)[column]);
    case Extent::kPerRow:
      return static_cast<const float*>(operand.data)[row];
    case Extent::kPerHead:
      return ToFloat(static_cast<const T*>(operand.data)[row * operand.head_dim + column % operand.head_dim]);
    case Extent::kMask:
      return static_cast<const std::uint8_t*>(operand.data)[row * columns + column];
    default:
      return 0;
  }
}

__device__ __forceinline__ float ApplyStep(StepKind kind, float a, float b, float scale, float shift) {
  switch (kind) {
    case StepKind::kAdd:
      return a + b;
    case StepKind::kSubtract:
      return a - b;
    case StepKind::kMultiply:
      return a * b;
    case StepKind::kDivide:
      return a / b;
    case StepKind::kAffine:
      return fmaf(a, scale, shift);
    case StepKind::kExp:
      return expf(a);
    case StepKind::kErf:
      return erff(a);
    case StepKind::kTanh:
      return tanhf(a);
    case StepKind::kSigmoid:
      return 1 / (1 + expf(-a));
    default:  // kApplyMask
      return b != 0 ? a * scale : 0;
  }
}

// Second operands of the elements of a word, one by one; it may reach into following rows, or begin before the first.
template <typename T>
__device__ __forceinline__ void ReadOperands(const ElementwiseArguments& step, std::int64_t element,
                                             float (&b)[kVectorElems<T>]) {
  const Elements& elements = step.elements;
  auto [row, column] = PlaceOf(elements, element < 0 ? 0 : element);
#pragma unroll
  for (int i = 0; i < kVectorElems<T>; ++i) {
    if (element + i < 0 || element + i >= elements.count) continue;
    b[i] = ReadOperand<T>(step.b, row, column, elements.columns);
    if (++column == elements.columns) column = 0, ++row;
  }
}

template <typename T>
__global__ void __launch_bounds__(kElementwiseThreads)
    ElementwiseStepKernel(const __grid_constant__ ElementwiseArguments step) {
  constexpr int kElems = kVectorElems<T>;
  const Bounds<std::int64_t> bounds = {step.elements.count};
  const bool aligned = step.elements.lie_alike;
  const std::int64_t element = FirstElement<T>(step.elements);
  if (element >= bounds.end) return;
  float a[kElems], b[kElems] = {};
  const Vector<T> word = Load(static_cast<const T*>(step.a), element, bounds, aligned);
  if (step.b_is_full) {
    Load(static_cast<const T*>(step.b.data), element, bounds, aligned).Unpack(b);
  } else if (step.b.data != nullptr) {
    ReadOperands<T>(step, element, b);
  }
  word.Unpack(a);
#pragma unroll
  for (int i = 0; i < kElems; ++i) a[i] = ApplyStep(step.kind, a[i], b[i], step.scale, step.shift);
  Store(static_cast<T*>(step.result), element, bounds, aligned, a);
}

struct SumPart {
  static constexpr int kFields = 1;
  float fields[kFields] = {0};
  __device__ __forceinline__ void Take(float x) { fields[0] += x; }
  __device__ __forceinline__ SumPart MergedOver(int lanes) const { return {{SumOfLanes(fields[0], lanes)}}; }
};

struct MaxPart {
  static constexpr int kFields = 1;
  float fields[kFields] = {-INFINITY};
  __device__ __forceinline__ void Take(float x) { fields[0] = fmaxf(fields[0], x); }
  __device__ __forceinline__ MaxPart MergedOver(int lanes) const { return {{MaxOfLanes(fields[0], lanes)}}; }
};

struct ReduceArguments {
  StepKind kind;
  const void* input;  // [R, N]
  float* result;      // [R]
  std::int64_t num_rows;
  int row_elems;
  int shift_elems;  // of the input
};

// A row each warp, or each block.
template <typename T, typename Part>
__global__ void __launch_bounds__(1024) ReduceStepKernel(const __grid_constant__ ReduceArguments step) {
  __shared__ Team::Slots smem_slots;
  constexpr int kElems = kVectorElems<T>;
  const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  Part part;
  if (row < step.num_rows) {
    const std::int64_t begin = row * step.row_elems;
    const T* const input = static_cast<const T*>(step.input) + begin;
    const Bounds<int> bounds = {step.row_elems};
    const int shift = static_cast<int>((begin + step.shift_elems) % kElems);
    for (int column = static_cast<int>(threadIdx.x) * kElems - shift; column < step.row_elems;
         column += static_cast<int>(blockDim.x) * kElems) {
      float x[kElems];
      Load(input, column, bounds, true, Part().fields[0]).Unpack(x);
#pragma unroll
      for (int i = 0; i < kElems; ++i) {
        part.Take(step.kind == StepKind::kRowMeanSquare ? x[i] * x[i] : x[i]);
      }
    }
  }
  part = Team(smem_slots, 1).Merge(part.MergedOver(kWarpThreads));
  if (row >= step.num_rows || threadIdx.x != 0) return;
  const bool is_mean = step.kind == StepKind::kRowMean || step.kind == StepKind::kRowMeanSquare;
  step.result[row] = is_mean ? part.fields[0] / static_cast<float>(step.row_elems) : part.fields[0];
}

template <typename T>
__global__ void __launch_bounds__(kTableThreads) TurnStepKernel(StepKind kind, const float* a, T* result, std::int64_t count) {
  const std::int64_t i = TableElement();
  if (i >= count) return;
  result[i] = FromFloat<T>(kind == StepKind::kSine ? sinpif(2 * a[i]) : cospif(2 * a[i]));
}

template <typename T>
__global__ void __launch_bounds__(kTableThreads)
    SwapStepKernel(RopeLayout layout, int head_dim, int rotary_dim, const T* a, T* result, std::int64_t count) {
  const std::int64_t i = TableElement();
  if (i >= count) return;
  const int element = static_cast<int>(i % head_dim);
  float swapped = 0;
  if (element < rotary_dim) {
    const int reach = layout == RopeLayout::kInterleaved ? 1 : rotary_dim / 2;
    const bool is_second = PairOf(layout, rotary_dim, element).is_second;
    swapped = is_second ? ToFloat(a[i - reach]) : -ToFloat(a[i + reach]);
  }
  result[i] = FromFloat<T>(swapped);
}

}  // namespace ridgeline::kernels::fused
