// Operations that need statistics of whole rows, fused: a task takes whole rows, and reads each again and again while it lies
// in the caches.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/common/data_type.h"
#include "kernels/common/rounding.h"
#include "kernels/fused/dropout.h"
#include "kernels/fused/fused_cpu.h"
#include "kernels/fused/op_info.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused/rows_cpu.cc"  // this file, once for each SIMD target
#include "hwy/foreach_target.h"                         // must come before highway.h
#include "hwy/highway.h"
#include "kernels/fused/activations-inl.h"
#include "kernels/fused/dropout-inl.h"
#include "kernels/fused/spans-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::fused::HWY_NAMESPACE {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename T>
void AddRows(const T* a, const T* b, std::int64_t elements, T* sum) {
  ForEachVector(elements, [&](std::int64_t i, std::size_t count)
                              HWY_ATTR { StoreUpTo(hn::Add(LoadUpTo(a + i, count), LoadUpTo(b + i, count)), sum + i, count); });
}

// What a norm does with an element: (x * scale - mean) * factor.
struct Normalization {
  float scale, mean, factor;
};

template <typename T>
Normalization MeasureScaled(const T* row, std::int64_t elements, bool subtracts_mean, float epsilon, float scale) {
  const FloatVec scales = hn::Set(kTag, scale);
  double mean = 0;
  if (subtracts_mean) {
    mean = SumOfTerms(elements,
                      [&](std::int64_t i, std::size_t count) HWY_ATTR { return hn::Mul(LoadUpTo(row + i, count), scales); }) /
           static_cast<double>(elements);
  }
  const FloatVec means = hn::Set(kTag, static_cast<float>(mean));
  const double squares = SumOfTerms(elements, [&](std::int64_t i, std::size_t count) HWY_ATTR {
    const FloatVec distance = KeepFirst(hn::MulSub(LoadUpTo(row + i, count), scales, means), count, 0);
    return hn::Mul(distance, distance);
  });
  const double mean_square = squares / static_cast<double>(elements) + double{epsilon} * scale * scale;
  return {.scale = scale, .mean = static_cast<float>(mean), .factor = static_cast<float>(1 / std::sqrt(mean_square))};
}

// Squares of finite elements may overflow, and sums too. Then all elements are taken times 2^-76; see row_kernel.cuh.
template <typename T>
Normalization Measure(const T* row, std::int64_t elements, bool subtracts_mean, float epsilon) {
  const Normalization by = MeasureScaled(row, elements, subtracts_mean, epsilon, 1);
  const bool overflowed = by.factor == 0 || std::isnan(by.factor);
  return overflowed ? MeasureScaled(row, elements, subtracts_mean, epsilon, 0x1p-76f) : by;
}

// Norms, with what follows them. Pointers are of one row, null where there is nothing.
template <typename T>
struct NormRow {
  const T* input;
  const T* weight;
  const T* bias;
  T* output;
  std::int64_t elements;
  Normalization by;

  HWY_INLINE FloatVec At(std::int64_t i, std::size_t count) const {
    FloatVec y = hn::MulSub(LoadUpTo(input + i, count), hn::Set(kTag, by.scale), hn::Set(kTag, by.mean));
    y = hn::Mul(y, hn::Set(kTag, by.factor));
    if (weight != nullptr) y = hn::Mul(y, LoadUpTo(weight + i, count));
    if (bias != nullptr) y = hn::Add(y, LoadUpTo(bias + i, count));
    return y;
  }

  void Store() const {
    ForEachVector(elements, [&](std::int64_t i, std::size_t count) HWY_ATTR { StoreUpTo(At(i, count), output + i, count); });
  }

  void StoreGeluDropout(GeluForm form, const DropoutRule& rule, std::int64_t position, std::uint8_t* mask) const {
    DropoutBits bits;
    const FloatVec scale = hn::Set(kTag, rule.scale);
    for (std::int64_t begin = 0; begin < elements; begin += DropoutBits::kMostElems) {
      const std::int64_t part = std::min(DropoutBits::kMostElems, elements - begin);
      bits.Draw(rule, position + begin, part);
      if (mask != nullptr) bits.StoreMask(rule, part, mask + begin);
      ForEachVector(part, [&](std::int64_t i, std::size_t count) HWY_ATTR {
        const FloatVec y = hn::Mul(Gelu(kTag, form, At(begin + i, count)), scale);
        StoreUpTo(hn::IfThenElseZero(bits.Keeps(rule, i), y), output + begin + i, count);
      });
    }
  }
};

// A vector's lanes each have a running maximum and sum, which are merged in the end: the online softmax.
template <typename T>
void SoftmaxRow(const T* row, std::int64_t elements, T* output) {
  const FloatVec minus_infinity = hn::Set(kTag, -kInfinity);
  FloatVec max = minus_infinity, sum = hn::Zero(kTag);
  // Among nothing but -inf, -inf - (-inf) would be NaN.
  const auto shift_of = [&](FloatVec of) HWY_ATTR { return hn::IfThenElse(hn::Eq(of, minus_infinity), hn::Zero(kTag), of); };
  ForEachVector(elements, [&](std::int64_t i, std::size_t count) HWY_ATTR {
    const FloatVec x = KeepFirst(LoadUpTo(row + i, count), count, -kInfinity);
    // A NaN is passed over by the maximum and stays in the sum.
    const FloatVec larger = hn::IfThenElse(hn::Gt(x, max), x, max);
    const FloatVec shift = shift_of(larger);
    const FloatVec rescaled = hn::Mul(sum, ExpOfNonPositive(kTag, hn::Sub(max, shift)));
    sum = hn::Add(rescaled, ExpOfNonPositive(kTag, hn::Sub(x, shift)));
    max = larger;
  });
  const FloatVec row_max = hn::MaxOfLanes(kTag, max);
  const FloatVec row_shift = shift_of(row_max);
  const FloatVec scaled = hn::Mul(sum, ExpOfNonPositive(kTag, hn::Sub(max, row_shift)));
  const FloatVec factor = hn::Div(hn::Set(kTag, 1.0f), hn::Set(kTag, hn::GetLane(hn::SumOfLanes(kTag, scaled))));
  ForEachVector(elements, [&](std::int64_t i, std::size_t count) HWY_ATTR {
    const FloatVec x = LoadUpTo(row + i, count);
    StoreUpTo(hn::Mul(ExpOfNonPositive(kTag, hn::Sub(x, row_shift)), factor), output + i, count);
  });
}

template <typename T>
void RunTyped(const FusedParams& params, const DropoutRule& rule, std::int64_t row_begin, std::int64_t row_end) {
  const FusedShape& shape = params.shape;
  const OpInfo& info = InfoOf(shape.op);
  const std::int64_t elements = shape.row_elems;
  const bool subtracts_mean = shape.op != Op::kRmsNorm && shape.op != Op::kAddRmsNorm;
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const std::int64_t begin = row * elements;
    const T* input = static_cast<const T*>(params.input) + begin;
    T* const output = static_cast<T*>(params.output) + begin;
    if (shape.op == Op::kSoftmax) {
      SoftmaxRow(input, elements, output);
      continue;
    }
    if (info.other != Use::kNone) {
      T* const sum = static_cast<T*>(params.residual_output) + begin;
      AddRows(input, static_cast<const T*>(params.other) + begin, elements, sum);
      input = sum;
    }
    const NormRow<T> norm = {.input = input,
                             .weight = shape.has_weight ? static_cast<const T*>(params.weight) : nullptr,
                             .bias = shape.has_bias && info.bias != Use::kNone ? static_cast<const T*>(params.bias) : nullptr,
                             .output = output,
                             .elements = elements,
                             .by = Measure(input, elements, subtracts_mean, static_cast<float>(shape.epsilon))};
    if (info.has_dropout) {
      norm.StoreGeluDropout(shape.gelu_form, rule, begin, shape.has_mask ? params.mask_output + begin : nullptr);
    } else {
      norm.Store();
    }
  }
}

}  // namespace

void RunRows(const FusedParams& params, const DropoutRule& rule, std::int64_t row_begin, std::int64_t row_end) {
  switch (params.shape.data_type) {
    case DataType::kFloat16:
      return RunTyped<Float16>(params, rule, row_begin, row_end);
    case DataType::kBFloat16:
      return RunTyped<BFloat16>(params, rule, row_begin, row_end);
    default:
      return RunTyped<float>(params, rule, row_begin, row_end);
  }
}

}  // namespace ridgeline::kernels::fused::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::kernels::fused {

HWY_EXPORT(RunRows);

void RunRowsOnCpu(const FusedParams& params, Executor& executor) {
  const DropoutRule rule = RuleOf(params.shape.dropout);
  const std::int64_t task_rows = std::max<std::int64_t>(1, kTaskElems / params.shape.row_elems);
  executor.ParallelFor(CeilDivide(params.shape.num_rows, task_rows), [&](std::int64_t task_idx, int /*slot*/) {
    const std::int64_t begin = task_idx * task_rows;
    HWY_DYNAMIC_DISPATCH(RunRows)(params, rule, begin, std::min(params.shape.num_rows, begin + task_rows));
  });
}

}  // namespace ridgeline::kernels::fused
#endif  // HWY_ONCE
