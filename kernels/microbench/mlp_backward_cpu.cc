#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/common/rounding.h"
#include "kernels/microbench/mlp_backward.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/microbench/mlp_backward_cpu.cc"  // this file, once for each SIMD target
#include "hwy/foreach_target.h"                                      // must come before highway.h
#include "hwy/highway.h"
#include "kernels/fused/activations-inl.h"
#include "kernels/fused/spans-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::kernels::microbench::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using fused::HWY_NAMESPACE::FloatVec;
using fused::HWY_NAMESPACE::ForEachVector;
using fused::HWY_NAMESPACE::KeepFirst;
using fused::HWY_NAMESPACE::kTag;
using fused::HWY_NAMESPACE::LoadUpTo;
using fused::HWY_NAMESPACE::NormalTail;
using fused::HWY_NAMESPACE::StoreUpTo;
using fused::HWY_NAMESPACE::SumOfTerms;

HWY_INLINE FloatVec GeluDerivative(FloatVec x) {
  const auto tail = NormalTail(kTag, x);
  const auto distribution = hn::IfThenElse(hn::Gt(x, hn::Zero(kTag)), hn::Sub(hn::Set(kTag, 1.0f), tail), tail);
  const auto bell = fused::HWY_NAMESPACE::ExpOfNonPositive(kTag, hn::Mul(hn::Mul(x, x), hn::Set(kTag, -0.5f)));
  return hn::MulAdd(hn::Mul(x, hn::Set(kTag, 0.3989422804f)), bell, distribution);  // 1 / sqrt(2 pi)
}

}  // namespace

void GeluBackward(const GeluBackwardParams& params, std::int64_t begin, std::int64_t end) {
  ForEachVector(end - begin, [&](std::int64_t i, std::size_t count) HWY_ATTR {
    const FloatVec derivative = GeluDerivative(LoadUpTo(params.input + begin + i, count));
    StoreUpTo(hn::Mul(derivative, LoadUpTo(params.output_gradient + begin + i, count)), params.input_gradient + begin + i,
              count);
  });
}

namespace {

// What a row's gradients are made of.
struct RowStatistics {
  float mean, factor;
  float mean_gradient, mean_product;  // of g, and of g * x^
};

RowStatistics Measure(const LayerNormBackwardParams& params, const float* x, const float* dy) {
  const auto columns = static_cast<double>(params.columns);
  RowStatistics row;
  row.mean = static_cast<float>(
      SumOfTerms(params.columns, [&](std::int64_t i, std::size_t count) HWY_ATTR { return LoadUpTo(x + i, count); }) / columns);
  const FloatVec mean = hn::Set(kTag, row.mean);
  const auto distance = [&](std::int64_t i, std::size_t count)
                            HWY_ATTR { return KeepFirst(hn::Sub(LoadUpTo(x + i, count), mean), count, 0); };
  const double squares = SumOfTerms(params.columns, [&](std::int64_t i, std::size_t count) HWY_ATTR {
    const FloatVec d = distance(i, count);
    return hn::Mul(d, d);
  });
  row.factor = static_cast<float>(1 / std::sqrt(squares / columns + double{params.epsilon}));
  const auto gradient = [&](std::int64_t i, std::size_t count)
                            HWY_ATTR { return hn::Mul(LoadUpTo(dy + i, count), LoadUpTo(params.weight + i, count)); };
  row.mean_gradient = static_cast<float>(SumOfTerms(params.columns, gradient) / columns);
  const double products = SumOfTerms(params.columns, [&](std::int64_t i, std::size_t count)
                                                         HWY_ATTR { return hn::Mul(gradient(i, count), distance(i, count)); });
  row.mean_product = static_cast<float>(products / columns) * row.factor;
  return row;
}

void AddRow(const LayerNormBackwardParams& params, std::int64_t row_idx, float* weight_sums, float* bias_sums) {
  const float* const x = params.input + row_idx * params.columns;
  const float* const dy = params.output_gradient + row_idx * params.columns;
  float* const dx = params.input_gradient + row_idx * params.columns;
  const RowStatistics row = Measure(params, x, dy);
  const FloatVec mean = hn::Set(kTag, row.mean), factor = hn::Set(kTag, row.factor);
  const FloatVec mean_gradient = hn::Set(kTag, row.mean_gradient), mean_product = hn::Set(kTag, row.mean_product);
  ForEachVector(params.columns, [&](std::int64_t i, std::size_t count) HWY_ATTR {
    const FloatVec dy_i = LoadUpTo(dy + i, count);
    const FloatVec normal = hn::Mul(hn::Sub(LoadUpTo(x + i, count), mean), factor);
    const FloatVec gradient = hn::Mul(dy_i, LoadUpTo(params.weight + i, count));
    const FloatVec centred = hn::NegMulAdd(normal, mean_product, hn::Sub(gradient, mean_gradient));
    StoreUpTo(hn::Mul(centred, factor), dx + i, count);
    StoreUpTo(hn::MulAdd(dy_i, normal, LoadUpTo(weight_sums + i, count)), weight_sums + i, count);
    StoreUpTo(hn::Add(dy_i, LoadUpTo(bias_sums + i, count)), bias_sums + i, count);
  });
}

}  // namespace

// The rows of one partial sum.
void LayerNormBackwardPart(const LayerNormBackwardParams& params, std::int64_t part) {
  float* const weight_sums = params.workspace + part * params.columns;
  float* const bias_sums = weight_sums + kLayerNormPartials * params.columns;
  std::fill_n(weight_sums, params.columns, 0.0f);
  std::fill_n(bias_sums, params.columns, 0.0f);
  const std::int64_t end = params.rows * (part + 1) / kLayerNormPartials;
  for (std::int64_t row = params.rows * part / kLayerNormPartials; row < end; ++row) {
    AddRow(params, row, weight_sums, bias_sums);
  }
}

}  // namespace ridgeline::kernels::microbench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::kernels::microbench {

HWY_EXPORT(GeluBackward);
HWY_EXPORT(LayerNormBackwardPart);

namespace {

constexpr std::int64_t kTaskElements = 32 << 10;
constexpr std::int64_t kTaskColumns = 256;

void SumParts(const float* parts, std::int64_t columns, std::int64_t begin, std::int64_t end, float* sums) {
  std::fill(sums + begin, sums + end, 0.0f);
  for (std::int64_t part = 0; part < kLayerNormPartials; ++part) {
    for (std::int64_t i = begin; i < end; ++i) sums[i] += parts[part * columns + i];
  }
}

}  // namespace

void RunOnCpu(const GeluBackwardParams& params, Executor& executor) {
  executor.ParallelFor(CeilDivide(params.elements, kTaskElements), [&](std::int64_t task, int /*slot*/) {
    const std::int64_t begin = task * kTaskElements;
    HWY_DYNAMIC_DISPATCH(GeluBackward)(params, begin, std::min(params.elements, begin + kTaskElements));
  });
}

void RunOnCpu(const LayerNormBackwardParams& params, Executor& executor) {
  executor.ParallelFor(kLayerNormPartials, [&](std::int64_t part, int /*slot*/) {
    HWY_DYNAMIC_DISPATCH(LayerNormBackwardPart)(params, part);
  });
  executor.ParallelFor(CeilDivide(params.columns, kTaskColumns), [&](std::int64_t task, int /*slot*/) {
    const std::int64_t begin = task * kTaskColumns, end = std::min(params.columns, begin + kTaskColumns);
    SumParts(params.workspace, params.columns, begin, end, params.weight_gradient);
    SumParts(params.workspace + kLayerNormPartials * params.columns, params.columns, begin, end, params.bias_gradient);
  });
}

}  // namespace ridgeline::kernels::microbench
#endif  // HWY_ONCE
