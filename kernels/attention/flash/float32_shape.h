// Which shapes the float32 kernel is built for. Shared by the plan and the dispatch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention/attention.h"

namespace ridgeline::kernels::attention {

struct Float32Shape {
  int tile_rows;
  int tile_keys;
};

constexpr Float32Shape Float32ShapeOf(int head_dim) { return head_dim <= 128 ? Float32Shape{64, 32} : Float32Shape{32, 16}; }

// The smallest head_dim of a kernel that holds query, key and value.
constexpr int Float32HeadDim(const AttentionShape& shape) {
  const std::int64_t head_dim = std::max(shape.head_dim, shape.value_head_dim);
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}

}  // namespace ridgeline::kernels::attention
