// The shapes on which fused operations are tested: one table for kernels on every device and for benches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/common/data_type.h"
#include "kernels/fused/fused.h"

namespace ridgeline::support {

inline constexpr kernels::DataType kFusedTypes[] = {kernels::DataType::kFloat32, kernels::DataType::kFloat16,
                                                    kernels::DataType::kBFloat16};
inline constexpr kernels::fused::Mode kFusedModes[] = {kernels::fused::Mode::kFused, kernels::fused::Mode::kUnfused};

struct RowsByColumns {
  std::int64_t rows, columns;
};

// Lengths about every border: of a word of 16 bytes, of a vector register, of what a lane, a warp, a block and a cluster hold;
// rows that divide into teams and that don't; none at all; the longest.
std::vector<RowsByColumns> FusedSizes();
// The few that are left where each costs more.
std::vector<RowsByColumns> FewFusedSizes();

// A shape with weight, bias and mask, of every operation but rotary embeddings.
kernels::fused::FusedShape ShapeOf(kernels::fused::Op op, kernels::DataType type, const RowsByColumns& size);

// The shape, and what else it may be: the other form of gelu, without weight and bias.
std::vector<kernels::fused::FusedShape> VariantsOf(const kernels::fused::FusedShape& shape);

// Operations on plain rows.
std::vector<kernels::fused::Op> RowOps();

// Rotary embeddings: heads and head_dims that are words and that aren't, parts of heads, both layouts.
std::vector<kernels::fused::FusedShape> RopeShapes(kernels::DataType type);

// For names of tests and messages, e.g. "add_rms_norm_bfloat16_3x4097".
std::string Describe(const kernels::fused::FusedShape& shape);

}  // namespace ridgeline::support
