// What the Hopper prefill kernel gets.
#pragma once

#include <cuda.h>

#include "kernels/attention/attention.h"
#include "kernels/attention/prefill_sm90/prefill_schedule.h"

namespace ridgeline::kernels::attention {

// What launches compute once for all logits.
struct LogitConstants {
  float tanh_factor = 0;       // with a soft cap: products times it are what TanhScores takes
  float tanh_unit = 0;         // and what it makes of them, times this, is the logit
  bool bias_in_pairs = false;  // all rows of the bias begin at multiples of 8 bytes
};

struct PrefillArguments {
  // Tensors as the copy engine sees them, [page, token, head, column] with a single page where there are none.
  CUtensorMap query;   // boxes of a tile's rows
  CUtensorMap key;     // boxes of schedule.copy_keys rows
  CUtensorMap value;   // likewise
  CUtensorMap output;  // boxes of a warpgroup's rows; unused if the output is of another type than the query

  AttentionParams params;
  PrefillSchedule schedule;
  LogitConstants logits;  // where options change them
};

}  // namespace ridgeline::kernels::attention
