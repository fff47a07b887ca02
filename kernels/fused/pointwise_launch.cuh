// From a problem to the launch of a pointwise kernel.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/fused/cuda_launches.h"
#include "kernels/fused/op_info.h"
#include "kernels/fused/pointwise_kernel.cuh"

namespace ridgeline::kernels::fused {

template <typename T>
cudaError_t LaunchPointwise(const FusedParams& params, cudaStream_t stream) {
  const OpInfo& info = InfoOf(params.shape.op);
  PointwiseArguments arguments = {.elements = {},
                                  .input = params.input,
                                  .other = info.other == Use::kNone ? nullptr : params.other,
                                  .bias = info.bias == Use::kNone ? nullptr : params.bias,
                                  .bias_is_words = false,
                                  .output = params.output};
  const std::uintptr_t distance = DistanceFromWord(params.input);
  const bool lie_alike =
      DistanceFromWord(params.output) == distance && (arguments.other == nullptr || DistanceFromWord(params.other) == distance);
  arguments.elements = ElementsOfTensor(params.shape.num_rows, params.shape.row_elems,
                                        static_cast<std::int64_t>(distance / sizeof(T)), lie_alike);
  arguments.bias_is_words =
      distance == 0 && params.shape.row_elems % kVectorElems<T> == 0 && DistanceFromWord(arguments.bias) == 0;
  void (*kernel)(PointwiseArguments) = PointwiseKernel<T, Pointwise::kGeluErf>;
  if (info.has_gelu_form && params.shape.gelu_form == GeluForm::kTanh) kernel = PointwiseKernel<T, Pointwise::kGeluTanh>;
  if (params.shape.op == Op::kSwiglu) kernel = PointwiseKernel<T, Pointwise::kSwiglu>;
  return Launch(kernel, ElementwiseShape<T>(arguments.elements), stream, arguments);
}

}  // namespace ridgeline::kernels::fused
