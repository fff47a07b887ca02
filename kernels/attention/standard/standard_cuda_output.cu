// Legend as in attention.h. One row of the output is one warp's work; lane l has elements l, l + 32, ...
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/attention/standard/standard_cuda_rows.cuh"
#include "kernels/attention/standard/standard_cuda_rows.h"
#include "kernels/common/float16.cuh"

namespace ridgeline::kernels::attention {
namespace {

constexpr int kWarpThreads = 32;
constexpr int kBlockRows = 8;
constexpr int kMaxValueHeadDim = 256;
constexpr int kLaneElems = kMaxValueHeadDim / kWarpThreads;

// Sums probability * value over the keys that are not hidden.
template <typename T>
__device__ void SumVisibleValues(const T* probabilities, int num_keys, const T* values, std::int64_t value_stride_elems,
                                 int value_dim, float (&sums)[kLaneElems]) {
  for (float& sum : sums) sum = 0;
  for (int key = 0; key < num_keys; ++key, values += value_stride_elems) {
    const float probability = ToFloat(probabilities[key]);
    if (probability == 0 && signbit(probability)) continue;
    // One that underflowed was not 0: an infinite value times it is infinite, not NaN.
    const float weight = probability == 0 ? __int_as_float(1) : probability;
#pragma unroll
    for (int i = 0; i < kLaneElems; ++i) {
      const int d = threadIdx.x + i * kWarpThreads;
      if (d < value_dim) sums[i] = fmaf(weight, ToFloat(values[d]), sums[i]);
    }
  }
}

// blockDim: warp x rows.
template <typename T, typename Product, typename Output>
__global__ void __launch_bounds__(kWarpThreads* kBlockRows)
    FinishOutputKernel(const __grid_constant__ AttentionParams params, const __grid_constant__ RunSlice slice,
                       const T* run_probabilities, const Product* run_product) {
  const std::int64_t query = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (query >= slice.query_tokens) return;
  const AttentionShape& shape = params.shape;
  const RowPlace place(slice, static_cast<int>(shape.query_heads), query);
  const Sequence sequence = params.sequences[place.sequence_idx];
  const int value_dim = static_cast<int>(shape.value_head_dim);
  Output* const output = static_cast<Output*>(params.output) +
                         ((sequence.query_begin + query) * shape.query_heads + place.head) * shape.value_head_dim;
  const std::int64_t sequence_of_run = place.sequence_idx - slice.first_sequence;
  const Product* product;
  if constexpr (std::is_same_v<Product, Output>) {
    product = output;
  } else {
    const std::int64_t token = sequence_of_run * slice.query_tokens + query;
    product = run_product + (token * shape.query_heads + place.head) * shape.value_head_dim;
  }

  const bool has_keys = slice.key_tokens > 0;
  float elements[kLaneElems] = {};
  bool is_finite = true;
#pragma unroll
  for (int i = 0; i < kLaneElems; ++i) {
    const int d = threadIdx.x + i * kWarpThreads;
    if (has_keys && d < value_dim) elements[i] = ToFloat(product[d]);
    is_finite = is_finite && isfinite(elements[i]);
  }
  const bool is_spoilt = __any_sync(0xffffffff, !is_finite);
  if (is_spoilt) {
    const std::int64_t token_elems = shape.kv_heads * shape.value_head_dim;
    const std::int64_t first_token = slice.first_key_token + sequence_of_run * slice.key_stride_tokens;
    const T* const values = static_cast<const T*>(params.value) + first_token * token_elems +
                            place.head / shape.GroupHeads() * shape.value_head_dim;
    SumVisibleValues(run_probabilities + place.FirstScore(slice), slice.key_tokens, values, token_elems, value_dim, elements);
  }
  if (std::is_same_v<Product, Output> && has_keys && !is_spoilt) return;  // cuBLAS has written it
#pragma unroll
  for (int i = 0; i < kLaneElems; ++i) {
    const int d = threadIdx.x + i * kWarpThreads;
    if (d < value_dim) output[d] = FromFloat<Output>(elements[i]);
  }
}

template <typename T, typename Output>
cudaError_t LaunchTyped(const AttentionParams& params, const SequenceRun& run, const void* probabilities, const void* product,
                        cudaStream_t stream) {
  using Product = std::conditional_t<std::is_same_v<T, Output>, Output, float>;  // ProductType
  return ForEachSlice(params.shape, run, kBlockRows, [&](const RunSlice& slice, dim3 grid) {
    return Launch(FinishOutputKernel<T, Product, Output>, {grid, dim3(kWarpThreads, kBlockRows)}, stream, params, slice,
                  static_cast<const T*>(probabilities), static_cast<const Product*>(product));
  });
}

template <typename T>
cudaError_t LaunchForInput(const AttentionParams& params, const SequenceRun& run, const void* probabilities,
                           const void* product, cudaStream_t stream) {
  switch (params.shape.output_data_type) {
    case DataType::kFloat16:
      return LaunchTyped<T, __half>(params, run, probabilities, product, stream);
    case DataType::kBFloat16:
      return LaunchTyped<T, __nv_bfloat16>(params, run, probabilities, product, stream);
    default:
      return LaunchTyped<T, float>(params, run, probabilities, product, stream);
  }
}

}  // namespace

cudaError_t LaunchFinishOutput(const AttentionParams& params, const SequenceRun& run, const void* probabilities,
                               const void* product, cudaStream_t stream) {
  switch (params.shape.data_type) {
    case DataType::kFloat16:
      return LaunchForInput<__half>(params, run, probabilities, product, stream);
    case DataType::kBFloat16:
      return LaunchForInput<__nv_bfloat16>(params, run, probabilities, product, stream);
    default:
      return LaunchForInput<float>(params, run, probabilities, product, stream);
  }
}

}  // namespace ridgeline::kernels::attention
