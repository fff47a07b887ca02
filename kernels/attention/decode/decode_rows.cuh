// The packed rows of one KV head of one sequence: row r is query r / (Hq/Hkv), head r % (Hq/Hkv) of the group.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/attention/decode/decode_arguments.h"
#include "kernels/attention/flash/running_softmax.cuh"
#include "kernels/attention/flash/store_rows.cuh"

namespace ridgeline::kernels::attention {

class PackedRows {
 public:
  __device__ PackedRows(const DecodeArguments& arguments, int sequence_idx, int kv_head)
      : arguments_(arguments), sequence_(arguments.params.sequences + sequence_idx) {
    const FastDivision& group = arguments.schedule.group_heads;
    num_rows_ = static_cast<int>(__ldg(&sequence_->query_tokens)) * static_cast<int>(group.divisor());
    first_head_ = kv_head * static_cast<int>(group.divisor());
    query_begin_ = __ldg(&sequence_->query_begin);
  }

  __device__ int size() const { return num_rows_; }
  __device__ int QueryOf(int row) const { return static_cast<int>(arguments_.schedule.group_heads.Quotient(row)); }
  __device__ int HeadOf(int row) const {
    return first_head_ + row - QueryOf(row) * static_cast<int>(arguments_.schedule.group_heads.divisor());
  }

  // Row of [query tokens * Hq], the layout of query and output.
  __device__ std::int64_t TokenHead(int row) const {
    return (query_begin_ + QueryOf(row)) * static_cast<int>(arguments_.params.shape.query_heads) + HeadOf(row);
  }
  // Element of log_sum_exp.
  __device__ std::int64_t LogSumExpIndex(int row) const {
    return __ldg(&sequence_->lse_begin) + HeadOf(row) * arguments_.params.lse_head_stride_elems + QueryOf(row);
  }

 private:
  const DecodeArguments& arguments_;
  const Sequence* sequence_;
  int num_rows_;
  int first_head_;
  std::int64_t query_begin_;
};

// A row of the output on its way: lane i has columns 128 * p + 4 * i to 4 * i + 3 of piece p, not yet divided by the sum.
template <typename Traits>
struct OutputRow {
  float maximum = -INFINITY;  // of the scores, before the scale
  float sum = 0;              // of the weights, which refer to the maximum
  float columns[Traits::kPieces][4] = {};

  // Columns that the lane has of piece p.
  __device__ static int Column(int piece) { return 128 * piece + 4 * Traits::lane(); }
  __device__ static bool HasColumn(int piece) { return Column(piece) < Traits::kHeadDim; }

  // Adds a part, whose weights refer to another maximum. `factor` turns the part's weights to this row's maximum.
  __device__ __forceinline__ void Add(int piece, float factor, const float4& part) {
    columns[piece][0] += factor * part.x;
    columns[piece][1] += factor * part.y;
    columns[piece][2] += factor * part.z;
    columns[piece][3] += factor * part.w;
  }
};

// Scores are products, or logits where there are options.
template <typename Traits>
__device__ __forceinline__ float LogitScale(const AttentionParams& params) {
  return Traits::kHasOptions ? 1.0f : params.scale;
}
template <typename Traits>
__device__ __forceinline__ float Log2Scale(const AttentionParams& params) {
  return LogitScale<Traits>(params) * 1.4426950408889634f;
}

// What weights are counted from. Where nothing but -inf was seen, 0: then they are 0.
__device__ __forceinline__ float ReferenceOf(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

template <typename T>
__device__ __forceinline__ void StoreFour(T* destination, const float (&values)[4]) {
  StorePair(destination, values[0], values[1]);
  StorePair(destination + 2, values[2], values[3]);
}

// Where a finished row goes; found before its parts arrive.
template <typename Traits>
class RowDestination {
 public:
  __device__ RowDestination(const DecodeArguments& arguments, const PackedRows& rows, int row)
      : params_(arguments.params), first_(rows.TokenHead(row) * static_cast<int>(arguments.params.shape.value_head_dim)) {
    if (params_.log_sum_exp != nullptr) log_sum_exp_ = params_.log_sum_exp + rows.LogSumExpIndex(row);
    if (params_.sink_logits != nullptr) sink_logit_ = __ldg(params_.sink_logits + rows.HeadOf(row));
  }

  __device__ __forceinline__ void Store(const OutputRow<Traits>& row) const {
    const RowResult result = FinishRow(row.maximum, row.sum, LogitScale<Traits>(params_), sink_logit_);
#pragma unroll
    for (int p = 0; p < Traits::kPieces; ++p) {
      const int column = OutputRow<Traits>::Column(p);
      if (column >= static_cast<int>(params_.shape.value_head_dim)) continue;
      float values[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) values[i] = row.columns[p][i] * result.output_factor;
      StoreColumns(first_ + column, values);
    }
    if (log_sum_exp_ != nullptr && Traits::lane() == 0) *log_sum_exp_ = result.LogSumExp();
  }

 private:
  __device__ __forceinline__ void StoreColumns(std::int64_t idx, const float (&values)[4]) const {
    using T = typename Traits::T;
    switch (params_.shape.output_data_type) {
      case kDataTypeOf<T>:
        StoreFour(static_cast<T*>(params_.output) + idx, values);
        break;
      case DataType::kFloat32:
        StoreFour(static_cast<float*>(params_.output) + idx, values);
        break;
      default:
        StoreFour(static_cast<OtherHalf<T>*>(params_.output) + idx, values);
    }
  }

  const AttentionParams& params_;
  const std::int64_t first_;  // element of the output
  float* log_sum_exp_ = nullptr;
  float sink_logit_ = -INFINITY;
};

}  // namespace ridgeline::kernels::attention
