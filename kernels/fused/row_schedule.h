// How CUDA devices cut rows among threads: a pure function of the problem and the device.
#pragma once

#include <cstdint>

#include "kernels/common/data_type.h"

namespace ridgeline::kernels::fused {

// What a schedule needs to know of a CUDA device.
struct CudaLimits {
  int compute_capability = 80;  // major * 10 + minor
  int num_sms = 1;
};

// A thread holds so many elements of a row in registers, 4 or 8 words of 16 bytes.
inline constexpr int kThreadElems = 32;

// Shared memory that may be a stage; as much is left for weights in the L1 cache.
inline constexpr int kMostStageBytes = 128 << 10;

struct RowProblem {
  DataType data_type;
  std::int64_t num_rows;
  std::int64_t row_elems;
  int num_inputs;  // tensors of rows that are read: 1 or 2
  bool is_words;   // every row, and every column vector, begins at a multiple of 16 bytes and is whole words
};

// A team of threads has a row: a part of a warp, a block, or a cluster of blocks that meet in shared memory.
struct RowSchedule {
  int threads = 32;        // of a row in one block
  int block_rows = 1;      // rows that a block has at a time
  int cluster_blocks = 1;  // blocks that share a row
  int chunks = 1;          // parts that a team holds one after the other; all but the last are read twice
  int num_blocks = 0;      // of the grid, a multiple of cluster_blocks; teams go round
  int stage_bytes = 0;     // of shared memory, where the next row waits; 0: none does
};

RowSchedule ScheduleRows(const RowProblem& problem, const CudaLimits& limits);

}  // namespace ridgeline::kernels::fused
