// Which shapes the mma kernel is built for. Shared by the plan and the dispatch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "kernels/attention/attention.h"

namespace ridgeline::kernels::attention {

// Rows of queries and keys of one block. RESULTS.md in tests/gpu has what chose them.
struct MmaShape {
  int tile_rows;
  int tile_keys;
};

inline constexpr int kMmaHeadDims[] = {64, 96, 128, 192, 256};

constexpr MmaShape MmaShapeOf(int mma_head_dim) { return mma_head_dim <= 128 ? MmaShape{128, 64} : MmaShape{64, 64}; }

// The smallest head_dim of a kernel that holds query, key and value.
constexpr int MmaHeadDim(const AttentionShape& shape) {
  const std::int64_t head_dim = std::max(shape.head_dim, shape.value_head_dim);
  return *std::find_if(std::begin(kMmaHeadDims), std::end(kMmaHeadDims) - 1, [&](int built) { return built >= head_dim; });
}

}  // namespace ridgeline::kernels::attention
