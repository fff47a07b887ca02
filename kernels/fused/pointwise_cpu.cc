// Operations that take their elements one by one, fused: a task takes a range of elements without regard to rows, unless a bias
// has a row's columns.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/data_type.h"
#include "kernels/common/rounding.h"
#include "kernels/fused/fused_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fused/pointwise_cpu.cc"  // this file, once for each SIMD target
#include "hwy/foreach_target.h"                              // must come before highway.h
#include "hwy/highway.h"
#include "kernels/fused/activations-inl.h"
#include "kernels/fused/spans-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::fused::HWY_NAMESPACE {
namespace {

template <typename T>
void RunTyped(const FusedParams& params, std::int64_t begin, std::int64_t end) {
  const T* const input = static_cast<const T*>(params.input) + begin;
  const T* const other = static_cast<const T*>(params.other) + begin;
  T* const output = static_cast<T*>(params.output) + begin;
  const std::int64_t elements = end - begin;
  const GeluForm form = params.shape.gelu_form;
  switch (params.shape.op) {
    case Op::kSwiglu:
      return ForEachVector(elements, [&](std::int64_t i, std::size_t count) HWY_ATTR {
        const FloatVec gate = LoadUpTo(input + i, count);
        const FloatVec silu = hn::Mul(gate, Sigmoid(kTag, gate));
        StoreUpTo(hn::Mul(silu, LoadUpTo(other + i, count)), output + i, count);
      });
    case Op::kGeluAdd:
      return ForEachVector(elements, [&](std::int64_t i, std::size_t count) HWY_ATTR {
        const FloatVec gelu = Gelu(kTag, form, LoadUpTo(input + i, count));
        StoreUpTo(hn::Add(gelu, LoadUpTo(other + i, count)), output + i, count);
      });
    default:
      return ForEachVector(elements, [&](std::int64_t i, std::size_t count) HWY_ATTR {
        StoreUpTo(Gelu(kTag, form, LoadUpTo(input + i, count)), output + i, count);
      });
  }
}

// Row by row, each from the first column on that is the task's.
template <typename T>
void RunBiasGelu(const FusedParams& params, std::int64_t begin, std::int64_t end) {
  const std::int64_t columns = params.shape.row_elems;
  const GeluForm form = params.shape.gelu_form;
  while (begin < end) {
    const std::int64_t column = begin % columns;
    const std::int64_t elements = std::min(end - begin, columns - column);
    const T* const input = static_cast<const T*>(params.input) + begin;
    const T* const bias = static_cast<const T*>(params.bias) + column;
    T* const output = static_cast<T*>(params.output) + begin;
    ForEachVector(elements, [&](std::int64_t i, std::size_t count) HWY_ATTR {
      const FloatVec x = hn::Add(LoadUpTo(input + i, count), LoadUpTo(bias + i, count));
      StoreUpTo(Gelu(kTag, form, x), output + i, count);
    });
    begin += elements;
  }
}

template <typename T>
void Run(const FusedParams& params, std::int64_t begin, std::int64_t end) {
  if (params.shape.op == Op::kBiasGelu) return RunBiasGelu<T>(params, begin, end);
  RunTyped<T>(params, begin, end);
}

}  // namespace

void RunPointwise(const FusedParams& params, std::int64_t begin, std::int64_t end) {
  switch (params.shape.data_type) {
    case DataType::kFloat16:
      return Run<Float16>(params, begin, end);
    case DataType::kBFloat16:
      return Run<BFloat16>(params, begin, end);
    default:
      return Run<float>(params, begin, end);
  }
}

}  // namespace ridgeline::kernels::fused::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::kernels::fused {

HWY_EXPORT(RunPointwise);

void RunPointwiseOnCpu(const FusedParams& params, Executor& executor) {
  const std::int64_t elements = params.shape.num_rows * params.shape.row_elems;
  executor.ParallelFor(CeilDivide(elements, kTaskElems), [&](std::int64_t task_idx, int /*slot*/) {
    const std::int64_t begin = task_idx * kTaskElems;
    HWY_DYNAMIC_DISPATCH(RunPointwise)(params, begin, std::min(elements, begin + kTaskElems));
  });
}

}  // namespace ridgeline::kernels::fused
#endif  // HWY_ONCE
