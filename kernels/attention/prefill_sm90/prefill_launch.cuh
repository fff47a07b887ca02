// The definition behind prefill_launch.h, for the files of inst/.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "kernels/attention/prefill_sm90/prefill_arguments.h"
#include "kernels/attention/prefill_sm90/prefill_kernel.cuh"
#include "kernels/attention/prefill_sm90/prefill_launch.h"
#include "kernels/attention/prefill_sm90/prefill_shape.h"
#include "kernels/attention/prefill_sm90/prefill_tanh.h"
#include "kernels/common/cuda_launch.cuh"
#include "kernels/common/tensor_map.h"

namespace ridgeline::kernels::attention {

// [pages, tokens, heads, columns] of 16-bit elements, copied in boxes of one head's 64 columns of `rows` tokens.
inline cudaError_t MapTokens(DataType type, const void* tensor, std::int64_t pages, std::int64_t tokens, std::int64_t heads,
                             std::int64_t columns, int rows, CUtensorMap& map) {
  const auto row_bytes = static_cast<std::uint64_t>(columns * 2);
  const auto token_bytes = static_cast<std::uint64_t>(heads) * row_bytes;
  const auto page_bytes = static_cast<std::uint64_t>(tokens) * token_bytes;
  return MakeTensorMap({.data_type = type,
                        .base = tensor,
                        .extents = {static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(heads),
                                    static_cast<std::uint64_t>(tokens), static_cast<std::uint64_t>(pages)},
                        .strides_bytes = {row_bytes, token_bytes, page_bytes},
                        .box = {64, 1, static_cast<std::uint32_t>(rows), 1}},
                       map);
}

inline cudaError_t MapTensors(int tile_rows, PrefillArguments& arguments) {
  const AttentionParams& params = arguments.params;
  const AttentionShape& shape = params.shape;
  const PrefillSchedule& schedule = arguments.schedule;
  // How many pages there are nobody says; those of the block table exist.
  const std::int64_t pages = shape.IsPaged() ? std::int64_t{1} << 31 : 1;
  const std::int64_t tokens = shape.IsPaged() ? shape.page_tokens : schedule.key_tokens;
  cudaError_t error = MapTokens(shape.data_type, params.query, 1, schedule.query_tokens, shape.query_heads, shape.head_dim,
                                tile_rows, arguments.query);
  if (error != cudaSuccess) return error;
  error =
      MapTokens(shape.data_type, params.key, pages, tokens, shape.kv_heads, shape.head_dim, schedule.copy_keys, arguments.key);
  if (error != cudaSuccess) return error;
  error = MapTokens(shape.data_type, params.value, pages, tokens, shape.kv_heads, shape.value_head_dim, schedule.copy_keys,
                    arguments.value);
  if (error != cudaSuccess || shape.output_data_type != shape.data_type) return error;
  return MapTokens(shape.data_type, params.output, 1, schedule.query_tokens, shape.query_heads, shape.value_head_dim, 64,
                   arguments.output);
}

// Caps at the ends of float32's range become others that give the same results, and whose reciprocals are in it.
inline LogitConstants ConstantsOf(const AttentionParams& params) {
  LogitConstants constants;
  if (params.logit_soft_cap > 0) {
    const float cap = std::clamp(params.logit_soft_cap, 0x1p-100f, 0x1p100f);
    constexpr float kLargest = std::numeric_limits<float>::max();
    constants.tanh_factor = std::clamp(params.scale / (cap * kTanhUnit), -kLargest, kLargest);
    constants.tanh_unit = cap * kTanhUnit;
  }
  const std::int64_t strides = params.bias_sequence_stride_elems | params.bias_head_stride_elems | params.bias_row_stride_elems;
  constants.bias_in_pairs = reinterpret_cast<std::uintptr_t>(params.bias) % 8 == 0 && strides % 2 == 0;
  return constants;
}

template <typename T, int kShapeIdx, LogitOption kOption>
cudaError_t LaunchPrefillKernel(const AttentionPlan& plan, const AttentionParams& params, cudaStream_t stream) {
  using Traits = PrefillTraits<T, kShapeIdx, kOption>;
  PrefillArguments arguments = {.query = {},
                                .key = {},
                                .value = {},
                                .output = {},
                                .params = params,
                                .schedule = plan.prefill,
                                .logits = ConstantsOf(params)};
  arguments.schedule.copy_keys = CopyKeys(params.shape, Traits::kTileKeys);  // with options blocks may be smaller than planned
  if (const cudaError_t error = MapTensors(Traits::kTileRows, arguments); error != cudaSuccess) return error;
  const LaunchShape launch = {.grid = dim3(static_cast<unsigned>(plan.prefill.num_blocks)),
                              .block = dim3(Traits::kThreads),
                              .shared_memory_bytes = sizeof(typename Traits::SharedStorage)};
  return Launch(PrefillKernel<Traits>, launch, stream, arguments);
}

// With each option.
#define RIDGELINE_INSTANTIATE_PREFILL_OPTION(T, shape_idx, option) \
  template cudaError_t LaunchPrefillKernel<T, shape_idx, option>(const AttentionPlan&, const AttentionParams&, cudaStream_t);
#define RIDGELINE_INSTANTIATE_PREFILL(T, shape_idx)                         \
  RIDGELINE_INSTANTIATE_PREFILL_OPTION(T, shape_idx, LogitOption::kNone)    \
  RIDGELINE_INSTANTIATE_PREFILL_OPTION(T, shape_idx, LogitOption::kSoftCap) \
  RIDGELINE_INSTANTIATE_PREFILL_OPTION(T, shape_idx, LogitOption::kAlibi)   \
  RIDGELINE_INSTANTIATE_PREFILL_OPTION(T, shape_idx, LogitOption::kAny)

}  // namespace ridgeline::kernels::attention
