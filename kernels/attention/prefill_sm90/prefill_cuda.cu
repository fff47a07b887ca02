// The dispatch: runtime values to the combinations that are built, in one list.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <array>
#include <utility>

#include "kernels/attention/prefill_sm90/prefill_cuda.h"
#include "kernels/attention/prefill_sm90/prefill_launch.h"
#include "kernels/attention/prefill_sm90/prefill_shape.h"

namespace ridgeline::kernels::attention {
namespace {

using Launcher = cudaError_t (*)(const AttentionPlan& plan, const AttentionParams& params, cudaStream_t stream);

// Scales that are not positive, or close to it, are an option: they change the order of logits, or leave float32's range.
LogitOption OptionOf(const AttentionParams& params) {
  constexpr float kLeastScale = 0x1p-60f;
  const bool has_cap = params.logit_soft_cap > 0, has_alibi = params.alibi_slopes != nullptr;
  if (params.bias != nullptr || (has_cap && has_alibi)) return LogitOption::kAny;
  if (has_cap) return LogitOption::kSoftCap;
  if (has_alibi) return LogitOption::kAlibi;
  return params.scale >= kLeastScale ? LogitOption::kNone : LogitOption::kAny;
}

template <typename T, LogitOption kOption, int... kShapes>
constexpr std::array<Launcher, kNumPrefillShapes> LaunchersOf(std::integer_sequence<int, kShapes...>) {
  return {LaunchPrefillKernel<T, kShapes, kOption>...};
}

template <typename T, LogitOption kOption>
Launcher Find(int shape_idx) {
  static constexpr auto kLaunchers = LaunchersOf<T, kOption>(std::make_integer_sequence<int, kNumPrefillShapes>());
  return kLaunchers[shape_idx];
}

template <typename T>
Launcher Find(int shape_idx, LogitOption option) {
  switch (option) {
    case LogitOption::kNone:
      return Find<T, LogitOption::kNone>(shape_idx);
    case LogitOption::kSoftCap:
      return Find<T, LogitOption::kSoftCap>(shape_idx);
    case LogitOption::kAlibi:
      return Find<T, LogitOption::kAlibi>(shape_idx);
    default:
      return Find<T, LogitOption::kAny>(shape_idx);
  }
}

}  // namespace

cudaError_t LaunchPrefill(const AttentionPlan& plan, const AttentionParams& params, cudaStream_t stream) {
  const LogitOption option = OptionOf(params);
  const Launcher launch = params.shape.data_type == DataType::kFloat16 ? Find<__half>(plan.prefill.shape_idx, option)
                                                                       : Find<__nv_bfloat16>(plan.prefill.shape_idx, option);
  return launch(plan, params, stream);
}

}  // namespace ridgeline::kernels::attention
