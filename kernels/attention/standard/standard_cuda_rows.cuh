// How the row kernels find their row of a run: one launch covers queries x (sequence, head), the latter in slices because a
// grid is at most 65535 high.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/standard/standard_cuda_layout.h"
#include "kernels/common/cuda_launch.cuh"

namespace ridgeline::kernels::attention {

// A slice of a run. Its heads are counted over the run: sequence by sequence, Hq each.
struct RunSlice {
  std::int64_t first_sequence;
  std::int64_t first_head;  // of the run's
  int query_tokens;
  int key_tokens;
  std::int64_t first_key_token;  // of the first sequence, in values
  std::int64_t key_stride_tokens;
};

// One row of S, P and the output.
struct RowPlace {
  std::int64_t sequence_idx;
  std::int64_t run_head;
  int head;
  int query_idx;

  // `query` may be beyond the last one: then the place is nowhere.
  __device__ RowPlace(const RunSlice& slice, int query_heads, std::int64_t query)
      : run_head(slice.first_head + blockIdx.y), query_idx(static_cast<int>(query)) {
    const std::int64_t sequence = run_head / query_heads;
    sequence_idx = slice.first_sequence + sequence;
    head = static_cast<int>(run_head - sequence * query_heads);
  }

  // Element of the run's S and P where the row begins.
  __device__ std::int64_t FirstScore(const RunSlice& slice) const {
    return (run_head * slice.query_tokens + query_idx) * ScoreRowElems(slice.key_tokens);
  }
};

// launch(slice, grid) for each slice of the run; a block takes `block_queries` queries.
template <typename LaunchSlice>
cudaError_t ForEachSlice(const AttentionShape& shape, const SequenceRun& run, int block_queries, const LaunchSlice& launch) {
  constexpr std::int64_t kMaxGridHeight = 65535;
  const std::int64_t num_heads = run.count * shape.query_heads;
  const unsigned width = static_cast<unsigned>((run.query_tokens + block_queries - 1) / block_queries);
  for (std::int64_t head = 0; head < num_heads; head += kMaxGridHeight) {
    const RunSlice slice = {.first_sequence = run.first_sequence,
                            .first_head = head,
                            .query_tokens = static_cast<int>(run.query_tokens),
                            .key_tokens = static_cast<int>(run.key_tokens),
                            .first_key_token = run.first_key_token,
                            .key_stride_tokens = run.key_stride_tokens};
    const dim3 grid(width, static_cast<unsigned>(std::min(kMaxGridHeight, num_heads - head)));
    if (const cudaError_t error = launch(slice, grid); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace ridgeline::kernels::attention
