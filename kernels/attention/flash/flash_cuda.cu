// The dispatch: runtime values to the combinations that are built, in one list.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/attention/flash/flash_arguments.h"
#include "kernels/attention/flash/flash_cuda.h"
#include "kernels/attention/flash/float32_launch.h"
#include "kernels/attention/flash/float32_shape.h"
#include "kernels/attention/flash/merge.h"
#include "kernels/attention/flash/mma_launch.h"
#include "kernels/attention/flash/mma_shape.h"
#include "kernels/attention/prefill_sm90/prefill_cuda.h"
#include "kernels/common/fast_division.h"

namespace ridgeline::kernels::attention {
namespace {

using Launcher = cudaError_t (*)(const FlashArguments& arguments, cudaStream_t stream);

// A scale that is not positive turns the order of the products round, which a kernel without options relies on.
bool HasLogitOptions(const AttentionParams& params) {
  return params.logit_soft_cap > 0 || params.alibi_slopes != nullptr || params.bias != nullptr || !(params.scale > 0);
}

MmaVariant VariantFor(const AttentionParams& params) {
  if (HasLogitOptions(params)) return MmaVariant::kGeneral;
  return params.shape.IsPaged() ? MmaVariant::kPaged : MmaVariant::kPlain;
}

template <typename T, int kHeadDim>
Launcher FindMma(MmaVariant variant) {
  switch (variant) {
    case MmaVariant::kPlain:
      return LaunchMma<T, kHeadDim, MmaVariant::kPlain>;
    case MmaVariant::kPaged:
      return LaunchMma<T, kHeadDim, MmaVariant::kPaged>;
    default:
      return LaunchMma<T, kHeadDim, MmaVariant::kGeneral>;
  }
}

template <typename T>
Launcher FindMma(const AttentionParams& params) {
  const MmaVariant variant = VariantFor(params);
  switch (MmaHeadDim(params.shape)) {
    case 64:
      return FindMma<T, 64>(variant);
    case 96:
      return FindMma<T, 96>(variant);
    case 128:
      return FindMma<T, 128>(variant);
    case 192:
      return FindMma<T, 192>(variant);
    default:
      return FindMma<T, 256>(variant);
  }
}

Launcher FindFloat32(const AttentionShape& shape) {
  switch (Float32HeadDim(shape)) {
    case 64:
      return LaunchFloat32<64>;
    case 128:
      return LaunchFloat32<128>;
    default:
      return LaunchFloat32<256>;
  }
}

Launcher FindLauncher(const AttentionParams& params) {
  switch (params.shape.data_type) {
    case DataType::kFloat16:
      return FindMma<__half>(params);
    case DataType::kBFloat16:
      return FindMma<__nv_bfloat16>(params);
    default:
      return FindFloat32(params.shape);
  }
}

}  // namespace

cudaError_t LaunchFlash(const AttentionPlan& plan, const AttentionParams& params, cudaStream_t stream) {
  if (plan.prefill.num_tiles > 0) return LaunchPrefill(plan, params, stream);
  FlashArguments arguments = {.params = params, .schedule = plan.tiles};
  if (params.shape.IsPaged()) arguments.page_tokens = FastDivision(static_cast<std::uint32_t>(params.shape.page_tokens));
  const bool is_split = plan.key_splits > 1;
  if (is_split) {
    arguments.partial_rows = plan.partial_rows;
    arguments.merge_schedule = plan.merge_tiles;
    arguments.partial_output = static_cast<float*>(params.workspace);
    arguments.partial_log_sum_exp =
        arguments.partial_output + plan.key_splits * plan.partial_rows * params.shape.value_head_dim;
  }
  const cudaError_t launched = FindLauncher(params)(arguments, stream);
  if (launched != cudaSuccess || !is_split) return launched;
  return LaunchMerge(arguments, stream);
}

}  // namespace ridgeline::kernels::attention
