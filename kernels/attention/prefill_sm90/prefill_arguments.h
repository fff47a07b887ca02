// What the Hopper prefill kernel gets.
#pragma once

#include <cuda.h>

#include "kernels/attention/attention.h"
#include "kernels/attention/prefill_sm90/prefill_schedule.h"

namespace ridgeline::kernels::attention {

struct PrefillArguments {
  // Tensors as the copy engine sees them, [page, token, head, column] with a single page where there are none.
  CUtensorMap query;   // boxes of a tile's rows
  CUtensorMap key;     // boxes of schedule.copy_keys rows
  CUtensorMap value;   // likewise
  CUtensorMap output;  // boxes of a warpgroup's rows; unused if the output is of another type than the query

  AttentionParams params;
  PrefillSchedule schedule;
};

}  // namespace ridgeline::kernels::attention
