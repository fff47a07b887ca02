// From a problem to the launch of a pointwise kernel.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/rounding.h"
#include "kernels/fused/cuda_launches.h"
#include "kernels/fused/op_info.h"
#include "kernels/fused/pointwise_kernel.cuh"
#include "kernels/fused/pointwise_words_kernel.cuh"

namespace ridgeline::kernels::fused {

inline Pointwise FunctionOf(const FusedShape& shape) {
  if (shape.op == Op::kSwiglu) return Pointwise::kSwiglu;
  return InfoOf(shape.op).has_gelu_form && shape.gelu_form == GeluForm::kTanh ? Pointwise::kGeluTanh : Pointwise::kGeluErf;
}

template <typename T, Beside kBeside>
cudaError_t LaunchPointwiseWords(Pointwise function, const PointwiseWordsArguments& arguments, cudaStream_t stream) {
  constexpr int kThreads = kPointwiseThreads<kBeside>;
  const std::int64_t blocks = CeilDivide(arguments.num_words, kThreads * kPointwiseWords<kBeside>);
  void (*kernel)(PointwiseWordsArguments) = PointwiseWordsKernel<T, Pointwise::kGeluErf, kBeside>;
  if (function == Pointwise::kGeluTanh) kernel = PointwiseWordsKernel<T, Pointwise::kGeluTanh, kBeside>;
  if constexpr (kBeside == Beside::kOther) {
    if (function == Pointwise::kSwiglu) kernel = PointwiseWordsKernel<T, Pointwise::kSwiglu, kBeside>;
  }
  const LaunchShape shape = {dim3(static_cast<unsigned>(blocks)), dim3(kThreads)};
  return Launch(kernel, shape, stream, arguments);
}

// Of tensors that are whole words.
template <typename T>
cudaError_t LaunchPointwiseWords(const FusedShape& shape, const PointwiseArguments& arguments, cudaStream_t stream) {
  PointwiseWordsArguments words = {.num_words = static_cast<std::uint32_t>(arguments.elements.count / kVectorElems<T>),
                                   .row_words = {},
                                   .input = arguments.input,
                                   .operand = arguments.other,
                                   .output = arguments.output};
  const Pointwise function = FunctionOf(shape);
  if (arguments.other != nullptr) return LaunchPointwiseWords<T, Beside::kOther>(function, words, stream);
  if (arguments.bias == nullptr) return LaunchPointwiseWords<T, Beside::kNone>(function, words, stream);
  words.operand = arguments.bias;
  words.row_words = FastDivision(static_cast<std::uint32_t>(shape.row_elems / kVectorElems<T>));
  return LaunchPointwiseWords<T, Beside::kBias>(function, words, stream);
}

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
  const std::int64_t count = arguments.elements.count;
  if (lie_alike && distance == 0 && count % kVectorElems<T> == 0 && count / kVectorElems<T> <= kMostPointwiseWords &&
      (arguments.bias == nullptr || arguments.bias_is_words)) {
    return LaunchPointwiseWords<T>(params.shape, arguments, stream);
  }
  void (*kernel)(PointwiseArguments) = PointwiseKernel<T, Pointwise::kGeluErf>;
  if (FunctionOf(params.shape) == Pointwise::kGeluTanh) kernel = PointwiseKernel<T, Pointwise::kGeluTanh>;
  if (FunctionOf(params.shape) == Pointwise::kSwiglu) kernel = PointwiseKernel<T, Pointwise::kSwiglu>;
  return Launch(kernel, ElementwiseShape<T>(arguments.elements), stream, arguments);
}

}  // namespace ridgeline::kernels::fused
