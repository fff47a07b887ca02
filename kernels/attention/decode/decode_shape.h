// Which shapes the decode kernel is built for, and the memory that it takes. Shared by the plan and the kernel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "kernels/attention/attention.h"

namespace ridgeline::kernels::attention {

inline constexpr int kDecodeTileKeys = 16;  // what one step of P·V consumes
inline constexpr int kDecodeRowMma = 8;     // rows are the N side of mma.m16n8k16
inline constexpr int kMostDecodeRows = 16;  // two of them
inline constexpr int kMostDecodeWarps = 8;
inline constexpr int kDecodeHeadDims[] = {64, 80, 96, 128, 256};

// The smallest head_dim of a kernel that holds query, key and value.
constexpr int DecodeHeadDim(const AttentionShape& shape) {
  const std::int64_t head_dim = std::max(shape.head_dim, shape.value_head_dim);
  return *std::find_if(std::begin(kDecodeHeadDims), std::end(kDecodeHeadDims) - 1,
                       [&](int built) { return built >= head_dim; });
}

// Tiles of a warp's ring: of 8 warps (4 of head_dim 256) they make about 128 KB, which keeps the memory busy; 192 KB queue.
constexpr int DecodeStages(int head_dim) { return head_dim == 64 ? 4 : head_dim <= 96 ? 3 : 2; }

// Floats of what one block leaves of a unit of work for another to merge; bounds KV heads of a block times rows.
inline constexpr int kMostPartFloats = 8192;

// A row of what a block leaves, in floats: its columns, (maximum, sum), and room so that all rows begin at 16 bytes.
constexpr int DecodePartPitch(int head_dim) { return head_dim + 4; }

// A row of the merge in shared memory, in floats: lanes that write to it meet different banks.
constexpr int DecodeMergePitch(int head_dim) { return head_dim + 4; }

// Rings; then, for each warp, its rows' outputs and (maximum, sum).
constexpr int DecodeSharedBytes(int head_dim, int num_warps, int rows) {
  const int ring = DecodeStages(head_dim) * 2 * kDecodeTileKeys * head_dim * 2;
  const int outputs = (rows + 1) / 2 * 2 * DecodeMergePitch(head_dim) * 4;
  return num_warps * (ring + outputs + kMostDecodeRows * 8);
}

}  // namespace ridgeline::kernels::attention
