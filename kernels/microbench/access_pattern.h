// The same bytes in other orders: strides, misaligned vectors, and transposition in several ways.
#pragma once

#include <cstdint>

#include "kernels/common/executor.h"

namespace ridgeline::kernels::microbench {

// sums[i] = the sum over slice i of source[j * stride], j in [0, count): each element is used once, and of each line that is
// fetched only what the stride leaves.
struct StridedParams {
  const float* source;  // [count * stride]
  std::int64_t count;
  std::int64_t stride;  // elements; 1 = dense
  float* slice_sums;    // [num_slots]
};

// destination[j] = source[j] by whole vectors, `passes` times; the caller misaligns the pointers. One slice a slot.
struct VectorCopyParams {
  const float* source;  // [elements]
  float* destination;   // [elements]
  std::int64_t elements;
  std::int64_t passes;
};

enum class TransposeMethod : std::uint8_t {
  kRows,        // reads rows, writes columns: each element of a column lies in another line, and page
  kTiles,       // by tiles, so that all of a line is used while it is near; CUDA: through shared memory
  kPaddedTiles  // CUDA: the tile's rows are one element apart, so that its columns lie in all banks
};

// destination[j, i] = source[i, j] of a square matrix. Leading dimensions may be larger than the size: a power of two makes all
// of a column fall into few sets of a cache.
struct TransposeParams {
  TransposeMethod method;
  const float* source;  // [size, source_stride]
  float* destination;   // [size, destination_stride]
  std::int64_t size;
  std::int64_t source_stride;       // elements, >= size
  std::int64_t destination_stride;  // likewise
};

void RunOnCpu(const StridedParams& params, Executor& executor);
void RunOnCpu(const VectorCopyParams& params, Executor& executor);
void RunOnCpu(const TransposeParams& params, Executor& executor);

}  // namespace ridgeline::kernels::microbench
