// What a warp does with its 16 rows at a tile's end: log-sum-exp and output.
//
//   frag O ──1/sum, round──► smem, where the queries were ──OutputStorer──► gmem       all 64 rows of the warpgroup exist
//                       └──► gmem                                                      some do not, or the type is another
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/attention/flash/running_softmax.cuh"
#include "kernels/attention/flash/store_rows.cuh"
#include "kernels/attention/prefill_sm90/prefill_arguments.h"
#include "kernels/attention/prefill_sm90/prefill_logits.cuh"
#include "kernels/attention/prefill_sm90/prefill_repair.cuh"
#include "kernels/attention/prefill_sm90/prefill_softmax.cuh"
#include "kernels/attention/prefill_sm90/prefill_store.cuh"
#include "kernels/attention/prefill_sm90/prefill_traits.cuh"
#include "kernels/common/float16.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/stmatrix.cuh"
#include "kernels/common/tensor_copy.cuh"

namespace ridgeline::kernels::attention {

// A thread's two rows when their last block has been weighed: all that is known of them without their outputs.
struct FinishedRows {
  SoftmaxRows rows;
  RowResult result[2];
};

template <typename Traits>
class PrefillEpilogue {
  using T = typename Traits::T;
  static constexpr int kOutputs = Traits::kValueHeadDim / 2;  // of a thread
  static constexpr unsigned kAllLanes = 0xffffffff;

 public:
  // `smem_output`: the warp's 16 rows of the buffer's first chunk. `row`: the warp's first in the tile.
  __device__ __forceinline__ PrefillEpilogue(const PrefillArguments& arguments, const PrefillTile& tile,
                                             std::uint32_t smem_output, int consumer, int row)
      : arguments_(arguments),
        params_(arguments.params),
        tile_(tile),
        smem_output_(smem_output),
        row_(row),
        is_bulk_(IsStoredInBulk<Traits>(params_.shape, tile.num_rows, consumer)) {}

  // While the last products with values still run.
  __device__ __forceinline__ FinishedRows Finish(const SoftmaxRows& rows) const {
    const float logit_scale = LogitUnit<Traits::kLogitOption>(arguments_);
    const float sink_logit = params_.sink_logits == nullptr ? -INFINITY : params_.sink_logits[tile_.query_head];
    const float sum[2] = {rows.WholeSum(0), rows.WholeSum(1)};
    return {rows,
            {FinishRow(rows.maximum[0], sum[0], logit_scale, sink_logit),
             FinishRow(rows.maximum[1], sum[1], logit_scale, sink_logit)}};
  }

  // Stores what the products have come to; `output_full` then gets this warp's arrival.
  __device__ __forceinline__ void Run(const FinishedRows& finished, float log2_scale, float (&output)[kOutputs],
                                      std::uint32_t output_full) const {
    const RowResult(&result)[2] = finished.result;
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) output[i] *= result[i / 2 % 2].output_factor;
    const bool is_converted = params_.shape.output_data_type != kDataTypeOf<T>;
    unsigned bad_rows;
    if (is_converted) {
      bad_rows = BadRows(output);
      StoreConverted(output);
    } else {
      bad_rows = RoundToShared(output);
    }
    if (bad_rows != 0) Repair(finished, log2_scale, bad_rows);
    if (!is_converted && !is_bulk_) CopyRows();
    std::int64_t lse_idx = 0;
    const bool writes_lse = params_.log_sum_exp != nullptr && lane() % 4 == 0;
    if (writes_lse) lse_idx = tile_.lse_idx + row_ + lane() / 4;
    const int num_rows = tile_.num_rows - row_ - lane() / 4;
    SharedToAsyncFence();
    __syncwarp();
    if (lane() == 0) MBarrierArrive(output_full);  // what is known of the tile may go from now on
    if (writes_lse && num_rows > 0) params_.log_sum_exp[lse_idx] = result[0].LogSumExp();
    if (writes_lse && num_rows > 8) params_.log_sum_exp[lse_idx + 8] = result[1].LogSumExp();
    __syncwarp();  // lanes have parted
  }

 private:
  __device__ __forceinline__ static int lane() { return LaneHere<Traits>(); }
  __device__ bool Exists(int half) const { return row_ + lane() / 4 + 8 * half < tile_.num_rows; }

  // A bit for each of the warp's rows that exists, set if it has an Inf or a NaN.
  __device__ __forceinline__ unsigned BitOfRows(bool first, bool second) const {
    const unsigned bits = (Exists(0) && first ? 1u : 0u) | (Exists(1) && second ? 1u << 8 : 0u);
    return __reduce_or_sync(kAllLanes, bits << lane() / 4);
  }
  __device__ __forceinline__ unsigned BadRows(const float (&output)[kOutputs]) const {
    float noted[2] = {};
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) noted[i / 2 % 2] = fmaf(output[i], 0.0f, noted[i / 2 % 2]);
    return BitOfRows(noted[0] != 0, noted[1] != 0);
  }

  // The rounded output to where the queries were; returns the rows that came out bad.
  __device__ __forceinline__ unsigned RoundToShared(const float (&output)[kOutputs]) const {
    const std::uint32_t first = ComputedHere(RowChunkAddress(smem_output_, lane() % 16, lane() / 16));
    std::uint32_t noted[2] = {};
#pragma unroll
    for (int i = 0; i < kOutputs / 8; ++i) {
      std::uint32_t fragment[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        fragment[j] = PackPair<T>(output[8 * i + 2 * j], output[8 * i + 2 * j + 1]);
        NoteNonFinite<T>(noted[j % 2], fragment[j]);
      }
      StMatrixX4((first ^ static_cast<std::uint32_t>(i % 4 * 32)) + i / 4 * Traits::kQueryChunkBytes, fragment);
    }
    return BitOfRows(HasNonFinite<T>(noted[0]), HasNonFinite<T>(noted[1]));
  }

  // From there to global memory, for rows that the copy engine does not store.
  __device__ __forceinline__ void CopyRows() const {
    __syncwarp();
    const int chunks = static_cast<int>(params_.shape.value_head_dim) / 8;
    const int num_rows = min(tile_.num_rows - row_, 16);
    T* const output = RowOutput(static_cast<T*>(params_.output), 0);
    const std::int64_t row_elems = params_.shape.query_heads * params_.shape.value_head_dim;
#pragma unroll 1
    for (int item = lane(); item < num_rows * chunks; item += 32) {
      const int row = item / chunks, chunk = item % chunks;
      StoreGlobal16(output + row * row_elems + chunk * 8, LoadShared16(ChunkAddress(row, chunk)));
    }
  }

  // Output of another type than the inputs': 32 columns at a time go through shared memory.
  __device__ __forceinline__ void StoreConverted(const float (&output)[kOutputs]) const {
#pragma unroll
    for (int columns = 0; columns < Traits::kValueHeadDim; columns += 32) {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int row = lane() / 4 + i % 2 * 8;
        const std::uint32_t pair = smem_output_ + row * Traits::kRowBytes + i / 2 * 32 + lane() % 4 * 8;
        StoreShared4(pair, __float_as_uint(output[columns / 2 + 2 * i]));
        StoreShared4(pair + 4, __float_as_uint(output[columns / 2 + 2 * i + 1]));
      }
      __syncwarp();
      CopyConverted(columns);
    }
  }
  __device__ __forceinline__ void CopyConverted(int first_column) const {
#pragma unroll 1
    for (int item = lane(); item < 16 * 16; item += 32) {
      const int row = item / 16, column = first_column + item % 16 * 2;
      const std::uint32_t pair = smem_output_ + row * Traits::kRowBytes + item % 16 * 8;
      if (row_ + row >= tile_.num_rows || column >= static_cast<int>(params_.shape.value_head_dim)) continue;
      StoreAs(row, column, __uint_as_float(LoadShared4(pair)), __uint_as_float(LoadShared4(pair + 4)));
    }
  }
  __device__ __forceinline__ void StoreAs(int row, int column, float first, float second) const {
    if (params_.shape.output_data_type == DataType::kFloat32) {
      StorePair(RowOutput(static_cast<float*>(params_.output), row) + column, first, second);
    } else {
      StorePair(RowOutput(static_cast<OtherHalf<T>*>(params_.output), row) + column, first, second);
    }
  }

  // Address of a 16-byte chunk in the warp's rows.
  __device__ __forceinline__ std::uint32_t ChunkAddress(int row, int chunk) const {
    return RowChunkAddress(smem_output_, row, chunk % 8) + chunk / 8 * Traits::kQueryChunkBytes;
  }

  template <typename Out>
  __device__ __forceinline__ Out* RowOutput(Out* output, int row) const {
    const std::int64_t token_head =
        (tile_.query_token + row_ + std::int64_t{row}) * params_.shape.query_heads + tile_.query_head;
    return output + token_head * params_.shape.value_head_dim;
  }

  // Computes rows again, those whose sums are finite: the others see a NaN or Inf among the logits, and are right as they are.
  __device__ __forceinline__ void Repair(const FinishedRows& finished, float log2_scale, unsigned bad_rows) const {
    const SoftmaxRows& rows = finished.rows;
    const RowResult(&result)[2] = finished.result;
    const RowRepair<Traits> repair(arguments_, tile_);
#pragma unroll 1
    for (; bad_rows != 0; bad_rows &= bad_rows - 1) {
      const int row = __ffs(static_cast<int>(bad_rows)) - 1, half = row / 8, holder = row % 8 * 4;
      const float total = __shfl_sync(kAllLanes, half == 0 ? result[0].total : result[1].total, holder);
      const float factor = __shfl_sync(kAllLanes, half == 0 ? result[0].output_factor : result[1].output_factor, holder);
      const float maximum = __shfl_sync(kAllLanes, half == 0 ? rows.maximum[0] : rows.maximum[1], holder);
      if (!isfinite(total)) continue;
      repair.Run(row_ + row, maximum, log2_scale, factor,
                 [&](int column, float first, float second) { StoreAgain(row, column, first, second); });
      __syncwarp();
    }
  }

  __device__ __forceinline__ void StoreAgain(int row, int column, float first, float second) const {
    if (column >= static_cast<int>(params_.shape.value_head_dim)) return;
    if (params_.shape.output_data_type == kDataTypeOf<T>) {
      StoreShared4(ChunkAddress(row, column / 8) + column % 8 * 2, PackPair<T>(first, second));
    } else {
      StoreAs(row, column, first, second);
    }
  }

  const PrefillArguments& arguments_;
  const AttentionParams& params_;
  const PrefillTile& tile_;
  const std::uint32_t smem_output_;
  const int row_;
  const bool is_bulk_;
};

}  // namespace ridgeline::kernels::attention
