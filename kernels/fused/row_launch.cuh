// From a problem to the launch of a row kernel.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/resident_clusters.cuh"
#include "kernels/fused/cuda_launches.h"
#include "kernels/fused/op_info.h"
#include "kernels/fused/row_kernel.cuh"

namespace ridgeline::kernels::fused {

template <typename T>
RowArguments ArgumentsOf(const FusedParams& params) {
  const OpInfo& info = InfoOf(params.shape.op);
  RowArguments arguments = {.input = params.input,
                            .other = info.other == Use::kNone ? nullptr : params.other,
                            .weight = info.weight == Use::kNone || !params.shape.has_weight ? nullptr : params.weight,
                            .bias = info.bias == Use::kNone || !params.shape.has_bias ? nullptr : params.bias,
                            .output = params.output,
                            .residual_output = info.other == Use::kNone ? nullptr : params.residual_output,
                            .mask = info.has_dropout && params.shape.has_mask ? params.mask_output : nullptr,
                            .num_rows = params.shape.num_rows,
                            .row_elems = static_cast<int>(params.shape.row_elems),
                            .shift_elems = static_cast<int>(DistanceFromWord(params.input) / sizeof(T)),
                            .rows_lie_alike = true,
                            .epsilon = static_cast<float>(params.shape.epsilon),
                            .dropout = RuleOf(params.shape.dropout),
                            .cluster_blocks = 1,
                            .chunks = 1};
  for (const void* array :
       {arguments.other, const_cast<const void*>(arguments.output), const_cast<const void*>(arguments.residual_output)}) {
    if (array != nullptr && DistanceFromWord(array) != DistanceFromWord(params.input)) arguments.rows_lie_alike = false;
  }
  return arguments;
}

template <typename T>
bool IsWords(const RowArguments& arguments) {
  return arguments.rows_lie_alike && arguments.shift_elems == 0 && arguments.row_elems % kVectorElems<T> == 0 &&
         DistanceFromWord(arguments.weight) == 0 && DistanceFromWord(arguments.bias) == 0;
}

using RowKernelFunction = void (*)(RowArguments);

template <typename T, RowAccess kAccess>
RowKernelFunction RowKernelOf(const FusedShape& shape) {
  switch (shape.op) {
    case Op::kRmsNorm:
      return RowKernel<T, SumOfSquares, kAccess, Epilogue::kNone, false>;
    case Op::kAddRmsNorm:
      return RowKernel<T, SumOfSquares, kAccess, Epilogue::kNone, true>;
    case Op::kSoftmax:
      return RowKernel<T, MaxSum, kAccess, Epilogue::kNone, false>;
    case Op::kLayerNormGeluDropout:
      if (shape.gelu_form == GeluForm::kErf) return RowKernel<T, MeanVariance, kAccess, Epilogue::kGeluErfDropout, false>;
      return RowKernel<T, MeanVariance, kAccess, Epilogue::kGeluTanhDropout, false>;
    case Op::kAddLayerNorm:
      return RowKernel<T, MeanVariance, kAccess, Epilogue::kNone, true>;
    default:
      return RowKernel<T, MeanVariance, kAccess, Epilogue::kNone, false>;
  }
}

// A row a block of whole warps, which go in one pass.
inline bool IsBlock(const RowSchedule& schedule) {
  return schedule.block_rows == 1 && schedule.threads >= kWarpThreads && schedule.threads <= kMostBlockRowThreads &&
         schedule.cluster_blocks == 1 && schedule.chunks == 1;
}

// All threads have all their words.
inline bool IsFull(const RowSchedule& schedule, std::int64_t row_elems) {
  return std::int64_t{schedule.threads} * schedule.cluster_blocks * kThreadElems == row_elems;
}

template <typename T>
cudaError_t LaunchRows(const FusedParams& params, const CudaLimits& limits, cudaStream_t stream) {
  RowArguments arguments = ArgumentsOf<T>(params);
  const RowProblem problem = {.data_type = params.shape.data_type,
                              .num_rows = params.shape.num_rows,
                              .row_elems = params.shape.row_elems,
                              .num_inputs = arguments.other == nullptr ? 1 : 2,
                              .is_words = IsWords<T>(arguments) && arguments.dropout.KeepsAny()};
  const RowSchedule schedule = ScheduleRows(problem, limits);
  arguments.cluster_blocks = schedule.cluster_blocks;
  arguments.chunks = schedule.chunks;
  RowKernelFunction kernel = RowKernelOf<T, RowAccess::kElements>(params.shape);
  if (problem.is_words && schedule.block_rows > 1) kernel = RowKernelOf<T, RowAccess::kWords>(params.shape);
  const bool is_full = IsFull(schedule, params.shape.row_elems) && arguments.mask == nullptr;
  if (problem.is_words && IsBlock(schedule)) {
    kernel = is_full ? RowKernelOf<T, RowAccess::kFullBlock>(params.shape) : RowKernelOf<T, RowAccess::kBlock>(params.shape);
  }
  if (schedule.stage_bytes > 0) {
    kernel = is_full ? RowKernelOf<T, RowAccess::kFullStaged>(params.shape) : RowKernelOf<T, RowAccess::kStaged>(params.shape);
  }
  LaunchShape shape = {.grid = dim3(static_cast<unsigned>(schedule.num_blocks)),
                       .block = dim3(static_cast<unsigned>(schedule.threads), static_cast<unsigned>(schedule.block_rows)),
                       .shared_memory_bytes = schedule.stage_bytes,
                       .cluster_blocks = schedule.cluster_blocks};
  // SMs come in pairs: as many clusters of two fit as there are.
  if (schedule.stage_bytes > 0 && schedule.cluster_blocks > 2 && schedule.num_blocks > 0) {
    if (const cudaError_t error = KeepResidentClusters(kernel, shape); error != cudaSuccess) return error;
  }
  return Launch(kernel, shape, stream, arguments);
}

}  // namespace ridgeline::kernels::fused
