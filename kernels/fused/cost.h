// Operations and bytes of fused operations by formula: what must be computed and moved, not what a counter saw.
#pragma once

#include <cstdint>

#include "kernels/fused/fused.h"

namespace ridgeline::kernels::fused {

struct Cost {
  std::int64_t flops;  // the same in both modes: sums over the chain of elementary steps; see FlopsPerElement
  std::int64_t bytes;  // through device memory
  int num_kernels;     // launched on CUDA devices
};

// Fused: each input read once, each output written once. Unfused: the same of every step. Weights, biases and tables count once
// a launch, however many rows share them. Saturates at INT64_MAX.
Cost CountCost(const FusedShape& shape, Mode mode);

// Of FusedParams::workspace: 0 if fused.
std::int64_t WorkspaceBytes(const FusedShape& shape, Mode mode);

}  // namespace ridgeline::kernels::fused
