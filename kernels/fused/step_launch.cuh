// From a step of the unfused chain to the launch of its kernel.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/rounding.h"
#include "kernels/fused/cuda_launches.h"
#include "kernels/fused/step_kernel.cuh"

namespace ridgeline::kernels::fused {

template <typename T>
cudaError_t LaunchElementwiseStep(const FusedParams& params, const Step& step, cudaStream_t stream) {
  ElementwiseArguments arguments = {
      .elements = {},
      .kind = step.kind,
      .a = Address(params, step.a),
      .b = {.data = Address(params, step.b), .extent = step.b.extent, .head_dim = static_cast<int>(params.shape.rope.head_dim)},
      .b_is_full = step.b.extent == step.a.extent,
      .result = Address(params, step.result),
      .scale = step.scale,
      .shift = step.shift};
  const std::uintptr_t distance = DistanceFromWord(arguments.a);
  const bool lie_alike = DistanceFromWord(arguments.result) == distance &&
                         (!arguments.b_is_full || DistanceFromWord(arguments.b.data) == distance);
  const std::int64_t columns = step.a.extent == Extent::kKeys ? params.shape.key_elems : params.shape.row_elems;
  arguments.elements =
      ElementsOfTensor(params.shape.num_rows, columns, static_cast<std::int64_t>(distance / sizeof(T)), lie_alike);
  return Launch(ElementwiseStepKernel<T>, ElementwiseShape<T>(arguments.elements), stream, arguments);
}

template <typename T>
cudaError_t LaunchReduceStep(const FusedParams& params, const Step& step, cudaStream_t stream) {
  constexpr std::int64_t kWarpRowElems = 2048;
  constexpr std::int64_t kSmallRowElems = 16384;
  constexpr int kSmallThreads = 256;
  const std::int64_t row_elems = params.shape.row_elems;
  const void* const input = Address(params, step.a);
  const ReduceArguments arguments = {.kind = step.kind,
                                     .input = input,
                                     .result = static_cast<float*>(Address(params, step.result)),
                                     .num_rows = params.shape.num_rows,
                                     .row_elems = static_cast<int>(row_elems),
                                     .shift_elems = static_cast<int>(DistanceFromWord(input) / sizeof(T))};
  dim3 block(kWarpThreads, kSmallThreads / kWarpThreads);
  if (row_elems > kWarpRowElems) block = dim3(row_elems > kSmallRowElems ? 1024 : kSmallThreads, 1);
  const LaunchShape shape = {dim3(static_cast<unsigned>(CeilDivide(params.shape.num_rows, block.y))), block};
  const auto kernel = step.kind == StepKind::kRowMax ? ReduceStepKernel<T, MaxPart> : ReduceStepKernel<T, SumPart>;
  return Launch(kernel, shape, stream, arguments);
}

template <typename T>
cudaError_t LaunchTypedStep(const FusedParams& params, const Step& step, cudaStream_t stream) {
  void* const result = Address(params, step.result);
  const std::int64_t count = ElementsOf(params.shape, step.result.extent);
  switch (step.kind) {
    case StepKind::kRowMean:
    case StepKind::kRowMeanSquare:
    case StepKind::kRowMax:
    case StepKind::kRowSum:
      return LaunchReduceStep<T>(params, step, stream);
    case StepKind::kSine:
    case StepKind::kCosine:
      return Launch(TurnStepKernel<T>, TableShape(count), stream, step.kind, static_cast<const float*>(Address(params, step.a)),
                    static_cast<T*>(result), count);
    case StepKind::kRopeSwap:
      return Launch(SwapStepKernel<T>, TableShape(count), stream, params.shape.rope.layout,
                    static_cast<int>(params.shape.rope.head_dim), static_cast<int>(params.shape.rope.rotary_dim),
                    static_cast<const T*>(Address(params, step.a)), static_cast<T*>(result), count);
    default:
      return LaunchElementwiseStep<T>(params, step, stream);
  }
}

}  // namespace ridgeline::kernels::fused
