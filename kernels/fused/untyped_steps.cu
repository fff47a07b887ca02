// The steps of the unfused mode that know no element type.
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/rounding.h"
#include "kernels/fused/cuda_launches.h"
#include "kernels/fused/dropout.h"
#include "kernels/fused/rope_angle.h"
#include "kernels/fused/table_walk.cuh"
#include "kernels/fused/token_position.cuh"
#include "kernels/kv_cache/kv_cache_cuda.h"

namespace ridgeline::kernels::fused {
namespace {

__global__ void __launch_bounds__(kTableThreads)
    RsqrtStepKernel(const float* a, float* result, std::int64_t count, float shift) {
  const std::int64_t i = TableElement();
  if (i < count) result[i] = rsqrtf(a[i] + shift);
}

__global__ void __launch_bounds__(kTableThreads)
    RevolutionsStepKernel(const __grid_constant__ AngleArguments angles, float* result) {
  const std::int64_t i = TableElement();
  if (i >= angles.num_rows * angles.head_dim) return;
  const int element = static_cast<int>(i % angles.head_dim);
  float revolutions = 0;
  if (element < angles.rotary_dim) {
    const PairElement of = PairOf(angles.layout, angles.rotary_dim, element);
    revolutions = angles.rates.Revolutions(PositionOf(angles, i / angles.head_dim), of.pair);
  }
  result[i] = revolutions;
}

__global__ void __launch_bounds__(kTableThreads) MaskStepKernel(DropoutRule rule, std::uint8_t* mask, std::int64_t count) {
  const std::int64_t block = TableElement();
  if (block * kDropoutBlockElems >= count) return;
  const microbench::PhiloxCounter bits = rule.BitsOfBlock(static_cast<std::uint64_t>(block));
#pragma unroll
  for (int i = 0; i < kDropoutBlockElems; ++i) {
    const std::int64_t element = block * kDropoutBlockElems + i;
    if (element < count) mask[element] = rule.Keeps(DropoutRule::BitsOfElement(bits[i / 2], i));
  }
}

cudaError_t LaunchRevolutionsStep(const FusedParams& params, const Step& step, cudaStream_t stream) {
  const RopeOptions& rope = params.shape.rope;
  AngleArguments angles = {.rates = RatesOf(rope),
                           .layout = rope.layout,
                           .head_dim = static_cast<int>(rope.head_dim),
                           .rotary_dim = static_cast<int>(rope.rotary_dim),
                           .num_rows = params.shape.num_rows,
                           .rows = {},
                           .positions = params.shape.has_positions ? params.positions : nullptr};
  if (params.shape.op == Op::kRopeAppend) angles.rows = params.append.to;
  return Launch(RevolutionsStepKernel, TableShape(ElementsOf(params.shape, Extent::kAngles)), stream, angles,
                static_cast<float*>(Address(params, step.result)));
}

cudaError_t LaunchAppendStep(const FusedParams& params, const Step& step, cudaStream_t stream) {
  kv_cache::AppendParams append = params.append;
  append.key = Address(params, step.a);
  return kv_cache::LaunchAppend(append, stream);
}

}  // namespace

cudaError_t LaunchUntypedStep(const FusedParams& params, const Step& step, cudaStream_t stream) {
  void* const result = Address(params, step.result);
  const std::int64_t count = ElementsOf(params.shape, step.result.extent);
  switch (step.kind) {
    case StepKind::kRsqrt:
      return Launch(RsqrtStepKernel, TableShape(count), stream, static_cast<const float*>(Address(params, step.a)),
                    static_cast<float*>(result), count, step.shift);
    case StepKind::kDropoutMask:
      return Launch(MaskStepKernel, TableShape(CeilDivide(count, kDropoutBlockElems)), stream, RuleOf(params.shape.dropout),
                    static_cast<std::uint8_t*>(result), count);
    case StepKind::kRopeRevolutions:
      return LaunchRevolutionsStep(params, step, stream);
    default:
      return LaunchAppendStep(params, step, stream);
  }
}

}  // namespace ridgeline::kernels::fused
