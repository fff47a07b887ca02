// Legend as in attention.h. One row is one warp's work or, beyond 1024 keys, one block's:
//
//   gmem S ──float4──► registers: logits ──► exp(logit - thread's maximum) ──── · factor ───► gmem P
//                                 └──► (maximum, sum) of thread ──► of warp ──► of row ─┘
//
// Up to 8192 keys the row stays in registers, so S is read once. A longer row is read in chunks, and all but the last chunk
// once more for P.
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/attention/standard/score_rows.h"
#include "kernels/attention/standard/standard_cuda_rows.cuh"
#include "kernels/attention/standard/standard_cuda_rows.h"
#include "kernels/attention/visible_range.h"
#include "kernels/common/float16.cuh"

namespace ridgeline::kernels::attention {
namespace {

constexpr int kWarpThreads = 32;
constexpr int kMaxThreads = 256;   // of one row
constexpr int kWarpRows = 4;       // rows of a block where one warp does for a row
constexpr int kVectorKeys = 4;     // 16 bytes of S
constexpr int kThreadVectors = 8;  // of a chunk
constexpr int kThreadKeys = kVectorKeys * kThreadVectors;
constexpr float kMinusInfinity = -INFINITY;

// One thread's keys of a chunk: vector v holds keys first + v * stride + (0, 1, 2, 3).
using ThreadKeys = float[kThreadVectors][kVectorKeys];

// What is to be subtracted from logits whose largest is `maximum`. Where nothing is visible, -inf - (-inf) would be NaN; any
// finite number leaves exp(-inf) = 0.
__device__ __forceinline__ float ShiftOf(float maximum) { return maximum == kMinusInfinity ? 0.0f : maximum; }

// A part of a row's softmax: its largest logit and the sum of exp(logit - ShiftOf(maximum)). A NaN is passed over by the
// maximum and stays in the sum.
struct PartialSoftmax {
  float maximum = kMinusInfinity;
  float sum = 0;

  __device__ __forceinline__ PartialSoftmax MergedWith(PartialSoftmax other) const {
    const float larger = fmaxf(maximum, other.maximum);
    const float shift = ShiftOf(larger);
    // Not fused: a product rounded on one side alone would give the lanes of a pair different sums.
    return {larger, __fadd_rn(__fmul_rn(sum, expf(maximum - shift)), __fmul_rn(other.sum, expf(other.maximum - shift)))};
  }
};

// Of all lanes, each of which gets the same bits.
__device__ __forceinline__ PartialSoftmax MergeWarp(PartialSoftmax part) {
  for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    part =
        part.MergedWith({__shfl_xor_sync(0xffffffff, part.maximum, distance), __shfl_xor_sync(0xffffffff, part.sum, distance)});
  }
  return part;
}

// Of all threads of a row: the block's if it is wider than a warp.
__device__ __forceinline__ PartialSoftmax MergeRow(PartialSoftmax part) {
  __shared__ PartialSoftmax smem_warps[kMaxThreads / kWarpThreads];
  part = MergeWarp(part);
  if (blockDim.x == kWarpThreads) return part;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int num_warps = static_cast<int>(blockDim.x) / kWarpThreads;
  if (lane == 0) smem_warps[threadIdx.x / kWarpThreads] = part;
  __syncthreads();
  return MergeWarp(lane < num_warps ? smem_warps[lane] : PartialSoftmax());
}

// One row of S, and what turns it into logits.
template <bool kHasOptions>
struct Row {
  const float* scores;  // [num_keys]
  int num_keys;
  int visible_begin;
  int visible_end;
  float scale;
  float soft_cap;         // 0: none
  float alibi_slope;      // 0: none
  std::int64_t position;  // VisibleRange::Position, for ALiBi
  const float* bias;      // [num_keys] or null

  __device__ Row(const AttentionParams& params, const RunSlice& slice, const RowPlace& place, const float* run_scores)
      : scores(run_scores + place.FirstScore(slice)), num_keys(slice.key_tokens), scale(params.scale) {
    const VisibleRange range(params.shape, slice.query_tokens, slice.key_tokens);
    const KeyRange visible = range.OfQuery(place.query_idx);
    visible_begin = static_cast<int>(visible.begin);
    visible_end = static_cast<int>(visible.end);
    if constexpr (kHasOptions) {
      soft_cap = params.logit_soft_cap;
      alibi_slope = params.alibi_slopes == nullptr ? 0.0f : params.alibi_slopes[place.head];
      position = range.Position(place.query_idx);
      bias = params.bias == nullptr
                 ? nullptr
                 : params.bias + place.sequence_idx * params.bias_sequence_stride_elems +
                       place.head * params.bias_head_stride_elems + place.query_idx * params.bias_row_stride_elems;
    }
  }

  __device__ __forceinline__ bool Sees(int key) const { return key >= visible_begin && key < visible_end; }
  // Whether any key of the vector is visible.
  __device__ __forceinline__ bool SeesVector(int key) const { return key < visible_end && key + kVectorKeys > visible_begin; }

  __device__ __forceinline__ float Logit(float score, int key) const {
    float logit = score * scale;
    if constexpr (kHasOptions) {
      if (soft_cap > 0) logit = soft_cap * tanhf(logit / soft_cap);
      if (alibi_slope != 0) logit = fmaf(-alibi_slope, static_cast<float>(llabs(position - key)), logit);
      if (bias != nullptr) {
        const float addend = bias[key];
        // Not by the sum alone: a masked key's score may be NaN.
        logit = addend == kMinusInfinity ? kMinusInfinity : logit + addend;
      }
    }
    return logit;
  }
};

template <bool kHasOptions>
__device__ __forceinline__ void LoadLogits(const Row<kHasOptions>& row, int first_key, ThreadKeys& logits) {
#pragma unroll
  for (int v = 0; v < kThreadVectors; ++v) {
    const int key = first_key + v * kVectorKeys * static_cast<int>(blockDim.x);
    float4 scores = {};
    if (row.SeesVector(key)) {
      if (key + kVectorKeys <= row.num_keys) {
        scores = *reinterpret_cast<const float4*>(row.scores + key);
      } else {  // what pads the row was never written
        scores.x = row.scores[key];
        if (key + 1 < row.num_keys) scores.y = row.scores[key + 1];
        if (key + 2 < row.num_keys) scores.z = row.scores[key + 2];
      }
    }
    logits[v][0] = scores.x, logits[v][1] = scores.y, logits[v][2] = scores.z, logits[v][3] = scores.w;
  }
#pragma unroll
  for (int v = 0; v < kThreadVectors; ++v) {
    const int key = first_key + v * kVectorKeys * static_cast<int>(blockDim.x);
#pragma unroll
    for (int e = 0; e < kVectorKeys; ++e) {
      logits[v][e] = row.Sees(key + e) ? row.Logit(logits[v][e], key + e) : kMinusInfinity;
    }
  }
}

__device__ __forceinline__ float LargestOf(const ThreadKeys& logits) {
  float largest = kMinusInfinity;
#pragma unroll
  for (int v = 0; v < kThreadVectors; ++v) {
    largest = fmaxf(largest, fmaxf(fmaxf(logits[v][0], logits[v][1]), fmaxf(logits[v][2], logits[v][3])));
  }
  return largest;
}

// Replaces logits by exp(logit - shift) and returns their sum.
template <bool kHasOptions>
__device__ __forceinline__ float Exponentiate(const Row<kHasOptions>& row, int first_key, float shift, ThreadKeys& keys) {
  float sum = 0;
#pragma unroll
  for (int v = 0; v < kThreadVectors; ++v) {
    // Exponentials cost more than a branch: what a mask hides and what is beyond the row is skipped, vector by vector.
    if (row.SeesVector(first_key + v * kVectorKeys * static_cast<int>(blockDim.x))) {
#pragma unroll
      for (int e = 0; e < kVectorKeys; ++e) {
        const float exponential = expf(keys[v][e] - shift);
        keys[v][e] = keys[v][e] == kMinusInfinity ? kHiddenProbability : exponential;
      }
    } else {
#pragma unroll
      for (int e = 0; e < kVectorKeys; ++e) keys[v][e] = kHiddenProbability;
    }
    sum += (keys[v][0] + keys[v][1]) + (keys[v][2] + keys[v][3]);
  }
  return sum;
}

template <typename T>
__device__ __forceinline__ void StoreVector(const float (&values)[kVectorKeys], T* to) {
  if constexpr (std::is_same_v<T, float>) {
    *reinterpret_cast<float4*>(to) = {values[0], values[1], values[2], values[3]};
  } else {
    *reinterpret_cast<uint2*>(to) = {PackPair<T>(values[0], values[1]), PackPair<T>(values[2], values[3])};
  }
}

// The last vector's excess goes into the padding of the row.
template <typename T>
__device__ __forceinline__ void StoreProbabilities(ThreadKeys& keys, float factor, int first_key, int num_keys, T* row) {
#pragma unroll
  for (int v = 0; v < kThreadVectors; ++v) {
    const int key = first_key + v * kVectorKeys * static_cast<int>(blockDim.x);
    if (key >= num_keys) return;
#pragma unroll
    for (int e = 0; e < kVectorKeys; ++e) keys[v][e] *= factor;
    StoreVector(keys[v], row + key);
  }
}

// blockDim: threads of a row x rows of a block; several rows only where a row is one warp's.
template <typename T, bool kHasOptions>
__global__ void __launch_bounds__(kMaxThreads, kHasOptions ? 2 : 3)
    SoftmaxKernel(const __grid_constant__ AttentionParams params, const __grid_constant__ RunSlice slice,
                  const float* run_scores, T* run_probabilities) {
  const std::int64_t query = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (query >= slice.query_tokens) return;  // a whole warp, and no other waits for it
  const RowPlace place(slice, static_cast<int>(params.shape.query_heads), query);
  const Row<kHasOptions> row(params, slice, place, run_scores);
  T* const probabilities = run_probabilities + place.FirstScore(slice);

  const int chunk_keys = kThreadKeys * static_cast<int>(blockDim.x);
  const int thread_key = kVectorKeys * static_cast<int>(threadIdx.x);
  ThreadKeys keys;
  PartialSoftmax own;
  int chunk = 0;
  for (;; chunk += chunk_keys) {
    LoadLogits(row, chunk + thread_key, keys);
    const float largest = fmaxf(own.maximum, LargestOf(keys));
    const float shift = ShiftOf(largest);
    own.sum *= expf(own.maximum - shift);
    own.maximum = largest;
    own.sum += Exponentiate(row, chunk + thread_key, shift, keys);
    if (row.num_keys - chunk <= chunk_keys) break;
  }

  PartialSoftmax all = MergeRow(own);
  if (params.sink_logits != nullptr) all = all.MergedWith({params.sink_logits[place.head], 1.0f});
  // From exponentials relative to the thread's own maximum to probabilities. A thread without visible keys has factor 0, not
  // the infinity that a finite stand-in for its maximum could give.
  const float factor = all.sum == 0 ? 0.0f : expf(own.maximum - ShiftOf(all.maximum)) / all.sum;
  StoreProbabilities(keys, factor, chunk + thread_key, row.num_keys, probabilities);
  while (chunk > 0) {
    chunk -= chunk_keys;
    LoadLogits(row, chunk + thread_key, keys);
    Exponentiate(row, chunk + thread_key, ShiftOf(own.maximum), keys);
    StoreProbabilities(keys, factor, chunk + thread_key, row.num_keys, probabilities);
  }
  if (params.log_sum_exp != nullptr && threadIdx.x == 0) {
    params.log_sum_exp[params.sequences[place.sequence_idx].lse_begin + place.head * params.lse_head_stride_elems + query] =
        ShiftOf(all.maximum) + logf(all.sum);  // log(0) = -inf
  }
}

// As many as hold the row in registers, if that many may.
int ThreadsOfRow(std::int64_t num_keys) {
  int threads = kWarpThreads;
  while (threads < kMaxThreads && std::int64_t{threads} * kThreadKeys < num_keys) threads *= 2;
  return threads;
}

template <typename T>
cudaError_t LaunchTyped(const AttentionParams& params, const SequenceRun& run, const float* scores, void* probabilities,
                        cudaStream_t stream) {
  const bool has_options = params.logit_soft_cap > 0 || params.alibi_slopes != nullptr || params.bias != nullptr;
  const auto kernel = has_options ? SoftmaxKernel<T, true> : SoftmaxKernel<T, false>;
  const int threads = ThreadsOfRow(run.key_tokens);
  const int rows = threads == kWarpThreads ? kWarpRows : 1;
  return ForEachSlice(params.shape, run, rows, [&](const RunSlice& slice, dim3 grid) {
    const LaunchShape shape = {grid, dim3(static_cast<unsigned>(threads), static_cast<unsigned>(rows))};
    return Launch(kernel, shape, stream, params, slice, scores, static_cast<T*>(probabilities));
  });
}

}  // namespace

cudaError_t LaunchSoftmax(const AttentionParams& params, const SequenceRun& run, const float* scores, void* probabilities,
                          cudaStream_t stream) {
  switch (params.shape.data_type) {
    case DataType::kFloat16:
      return LaunchTyped<__half>(params, run, scores, probabilities, stream);
    case DataType::kBFloat16:
      return LaunchTyped<__nv_bfloat16>(params, run, scores, probabilities, stream);
    default:
      return LaunchTyped<float>(params, run, scores, probabilities, stream);
  }
}

}  // namespace ridgeline::kernels::attention
