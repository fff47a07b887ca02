// What every flash kernel on CUDA devices gets.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/attention/flash/tile_schedule.h"

namespace ridgeline::kernels::attention {

struct FlashArguments {
  AttentionParams params;
  TileSchedule schedule;

  // Where the keys are split, each split leaves its part of the result here, in rows of (query token, query head); merged
  // later.
  float* partial_output = nullptr;       // [key_splits, query tokens, Hq, Dv], normalised
  float* partial_log_sum_exp = nullptr;  // [key_splits, query tokens, Hq]; -inf: saw no key, and partial_output is unwritten
  std::int64_t partial_rows = 0;         // query tokens * Hq
  TileSchedule merge_schedule;           // all query heads packed
};

}  // namespace ridgeline::kernels::attention
