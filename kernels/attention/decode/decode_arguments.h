// What the decode kernel is launched with.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/attention/decode/decode_schedule.h"

namespace ridgeline::kernels::attention {

struct DecodeArguments {
  AttentionParams params;
  DecodeSchedule schedule;
};

}  // namespace ridgeline::kernels::attention
