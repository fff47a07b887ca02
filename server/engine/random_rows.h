// Random tensors on the host: a few rows are made sooner there than they could wait for a launch of their own.
#pragma once

#include "server/engine/check_tensor.h"

namespace ridgeline::engine {

// A small tensor that the device would make (RandomFill) becomes one with its bytes at hand, so that its request can share a
// launch; larger ones, and others, stay as they are. The same elements, to the rounding that FillNormalOnCpu says.
void MakeSmallRandomInline(TensorSource& tensor);

}  // namespace ridgeline::engine
