#include "kernels/fused/fused_cuda.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include "kernels/fused/cuda_launches.h"
#include "kernels/fused/op_info.h"
#include "kernels/fused/steps.h"

namespace ridgeline::kernels::fused {
namespace {

bool IsUntyped(StepKind kind) {
  return kind == StepKind::kRsqrt || kind == StepKind::kDropoutMask || kind == StepKind::kRopeRevolutions ||
         kind == StepKind::kAppend;
}

template <typename T>
cudaError_t LaunchTyped(const FusedParams& params, Mode mode, const CudaLimits& limits, cudaStream_t stream) {
  const FusedShape& shape = params.shape;
  if (mode == Mode::kUnfused) {
    for (const Step& step : UnfusedChain(shape).steps) {
      const cudaError_t error =
          IsUntyped(step.kind) ? LaunchUntypedStep(params, step, stream) : LaunchTypedStep<T>(params, step, stream);
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  }
  const OpInfo& info = InfoOf(shape.op);
  if (info.has_rope) return LaunchRope<T>(params, stream);
  if (!info.reduces_rows) return LaunchPointwise<T>(params, stream);
  return LaunchRows<T>(params, limits, stream);
}

}  // namespace

cudaError_t LaunchFused(const FusedParams& params, Mode mode, const CudaLimits& limits, cudaStream_t stream) {
  if (params.shape.num_rows == 0) return cudaSuccess;
  switch (params.shape.data_type) {
    case DataType::kFloat16:
      return LaunchTyped<__half>(params, mode, limits, stream);
    case DataType::kBFloat16:
      return LaunchTyped<__nv_bfloat16>(params, mode, limits, stream);
    default:
      return LaunchTyped<float>(params, mode, limits, stream);
  }
}

}  // namespace ridgeline::kernels::fused
