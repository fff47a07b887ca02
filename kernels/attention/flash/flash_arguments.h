// What every flash kernel on CUDA devices gets.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/flash/tile_schedule.h"
#include "kernels/common/fast_division.h"

namespace ridgeline::kernels::attention {

struct FlashArguments {
  AttentionParams params;
  TileSchedule schedule;
  FastDivision page_tokens;  // if keys and values lie in pages

  // Where the keys are split, each split leaves its part of the result here, in rows of (query token, query head); merged
  // later.
  float* partial_output = nullptr;       // [key_splits, query tokens, Hq, Dv], normalised
  float* partial_log_sum_exp = nullptr;  // [key_splits, query tokens, Hq]; -inf: saw no key, and partial_output is unwritten
  std::int64_t partial_rows = 0;         // query tokens * Hq
  TileSchedule merge_schedule;           // all query heads packed

  // Of keys or values, for the mma kernel, which reads them here more quickly than it computes them.
  struct Strides {
    std::uint32_t token_elems = 0;
    std::int64_t pass_elems = 0;   // from a row that a thread copies to its next
    std::int64_t block_elems = 0;  // of all keys of a block
  };
  Strides key_strides;
  Strides value_strides;
};

}  // namespace ridgeline::kernels::attention
