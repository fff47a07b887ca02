// What the mma kernel does with its fragments at the end: log-sum-exp and output, final or of a split.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

#include "kernels/attention/flash/flash_arguments.h"
#include "kernels/attention/flash/mma_traits.cuh"
#include "kernels/attention/flash/running_softmax.cuh"
#include "kernels/attention/flash/store_rows.cuh"
#include "kernels/common/float16.cuh"
#include "kernels/common/shared_memory.cuh"

namespace ridgeline::kernels::attention {

template <typename Traits>
class MmaEpilogue {
  using T = typename Traits::T;
  static constexpr int kRowMmas = Traits::kRowMmas;

 public:
  // `smem_query` is overwritten.
  __device__ MmaEpilogue(const FlashArguments& arguments, const typename Traits::Facts& facts,
                         const typename Traits::QueryTile& smem_query)
      : arguments_(arguments), params_(arguments.params), facts_(facts), smem_query_(smem_query) {}

  // Writes the log-sum-exp of one of the lane's rows; returns what its output is to be multiplied with.
  __device__ __forceinline__ float FinishRow(int mma, int half, float maximum, float sum) const {
    const int row = Traits::RowOf(mma, half);
    const float logit_scale = Traits::kHasLogitOptions ? 1.0f : params_.scale;
    const bool is_partial = arguments_.schedule.key_splits > 1;
    const bool has_sink = params_.sink_logits != nullptr && !is_partial && row < facts_.place.num_rows;
    const float sink_logit = has_sink ? params_.sink_logits[facts_.query_head[row]] : -INFINITY;
    const RowResult result = attention::FinishRow(maximum, sum, logit_scale, sink_logit);
    if (!is_partial && params_.log_sum_exp == nullptr) return result.output_factor;
    if (row < facts_.place.num_rows && Traits::lane() % 4 == 0) {
      if (is_partial) {
        arguments_.partial_log_sum_exp[facts_.place.tile.split * arguments_.partial_rows + facts_.token_head[row]] =
            result.LogSumExp();
      } else {
        params_.log_sum_exp[facts_.lse_idx[row]] = result.LogSumExp();
      }
    }
    return result.output_factor;
  }

  // Writes the finished output.
  __device__ __forceinline__ void Store(const typename Traits::Output& output) const {
    if (arguments_.schedule.key_splits > 1) {
      StorePairs(output,
                 arguments_.partial_output + facts_.place.tile.split * arguments_.partial_rows * params_.shape.value_head_dim);
    } else if (params_.shape.output_data_type == kDataTypeOf<T>) {
      StoreThroughShared(output);
    } else if (params_.shape.output_data_type == DataType::kFloat32) {
      StorePairs(output, static_cast<float*>(params_.output));
    } else {
      StorePairs(output, static_cast<OtherHalf<T>*>(params_.output));
    }
  }

 private:
  // The output in the type of the inputs: a warp's rows go through what were its queries, so that rows are written in pieces of
  // 16 bytes.
  __device__ void StoreThroughShared(const typename Traits::Output& output) const {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int d = 0; d < Traits::kOutputMmas; ++d) {
          StoreShared4(smem_query_.ChunkAddress(Traits::RowOf(i, half), d) + Traits::lane() % 4 * 4,
                       PackPair<T>(output[i][d][2 * half], output[i][d][2 * half + 1]));
        }
      }
    }
    __syncwarp();
    StoreChunks();
  }

  // A lane has one chunk of each row of a pass, passes whole rows. Several rows under way hide what shared memory takes.
  __device__ void StoreChunks() const {
    constexpr int kPassRows = 32 * 16 / Traits::QueryTile::kPitchBytes;
    constexpr int kPasses = Traits::kWarpRows / kPassRows;
    constexpr int kBatch = kPasses < 8 ? kPasses : 8;
    static_assert(kPasses % kBatch == 0, "all batches are of the same size");
    const int chunk = Traits::lane() % (32 / kPassRows);
    const std::int64_t columns = params_.shape.value_head_dim;
    if (chunk >= Traits::QueryTile::kChunks || chunk * 8 >= columns) return;
    const int first_row = Traits::warp() * Traits::kWarpRows + Traits::lane() / (32 / kPassRows);
    T* const output = static_cast<T*>(params_.output) + chunk * 8;
#pragma unroll
    for (int batch = 0; batch < kPasses; batch += kBatch) {
      uint4 stored[kBatch];
      std::int64_t token_head[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int row = first_row + (batch + i) * kPassRows;
        stored[i] = LoadShared16(smem_query_.ChunkAddress(row, chunk));
        token_head[i] = facts_.token_head[row];
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (first_row + (batch + i) * kPassRows < facts_.place.num_rows) {
          StoreGlobal16(output + token_head[i] * columns, stored[i]);
        }
      }
    }
  }

  // Straight from the fragments, converted to Out.
  template <typename Out>
  __device__ void StorePairs(const typename Traits::Output& output, Out* destination) const {
    const int columns = static_cast<int>(params_.shape.value_head_dim);
#pragma unroll
    for (int i = 0; i < kRowMmas; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = Traits::RowOf(i, half);
        if (row >= facts_.place.num_rows) continue;
        Out* const row_output = destination + facts_.token_head[row] * columns;
#pragma unroll
        for (int d = 0; d < Traits::kOutputMmas; ++d) {
          const int column = d * 8 + Traits::lane() % 4 * 2;
          if (column < columns) StorePair(row_output + column, output[i][d][2 * half], output[i][d][2 * half + 1]);
        }
      }
    }
  }

  const FlashArguments& arguments_;
  const AttentionParams& params_;
  const typename Traits::Facts& facts_;
  const typename Traits::QueryTile& smem_query_;
};

}  // namespace ridgeline::kernels::attention
