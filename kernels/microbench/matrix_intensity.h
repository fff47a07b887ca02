// Products of the matrix unit whose arithmetic intensity is chosen: it reads an array once and multiplies what it read as often
// as asked. For each type, the roofline's two lines and where they meet.
#pragma once

#include <cstdint>

#include "kernels/microbench/compute_peak.h"

namespace ridgeline::kernels::microbench {

// The array is cut into slabs, each the operand B[256,K] of a product whose K is 128 bytes. Of `slabs_per_product` slabs that
// follow each other, a group, the first is multiplied `products_per_slab` times by the same A[64,K], and added to sums; the
// rest are only read. So the intensity is
//
//   2 * 64 * K * 256 * products_per_slab / (kSlabBytes * slabs_per_product)  FLOP per byte
//
// Signs alternate along K in both, so that products are of absolute values, which are 1 in A and SlabValue in B. A is negative
// for every other group of a warpgroup's: all sums stay whole numbers below 2^13, beyond which the matrix unit adds products of
// 8-bit floats with less than their last bit.
struct MatrixIntensityParams {
  MatrixType type;
  const void* slabs;       // [num_slabs, kSlabBytes], as SlabPatternParams fills them
  std::int64_t num_slabs;  // a multiple of slabs_per_product
  int slabs_per_product;   // one of the two is 1
  int products_per_slab;
  float* slice_sums;  // [num_slots]: of all sums over one slice of the groups for each slot
};

struct SlabPatternParams {
  MatrixType type;
  std::int64_t num_slabs;
  void* slabs;  // [num_slabs, kSlabBytes]
};

inline constexpr std::int64_t kSlabBytes = std::int64_t{kWgmmaColumns} * kMatrixStepBytes * kWgmmaTileSteps;
inline constexpr int kIntensityWarpgroups = 2;  // of a block: they take turns with its groups

// 1 or 2, of a period that none of the kernel's has.
constexpr std::int64_t SlabValue(std::int64_t slab) { return slab % 5 < 3 ? 1 : 2; }

// FLOPs of one product, and of a run.
constexpr std::int64_t SlabProductFlops(MatrixType type) { return 2 * kWgmmaRows * (kSlabBytes / MatrixElementBytes(type)); }
constexpr std::int64_t MatrixIntensityFlops(const MatrixIntensityParams& params) {
  return params.num_slabs / params.slabs_per_product * params.products_per_slab * SlabProductFlops(params.type);
}

// Of a slot's groups, the first and the one after the last.
struct SlabGroups {
  std::int64_t begin, end;
};
constexpr SlabGroups SlabGroupsOf(const MatrixIntensityParams& params, std::int64_t slot, std::int64_t num_slots) {
  const std::int64_t num_groups = params.num_slabs / params.slabs_per_product;
  return {num_groups * slot / num_slots, num_groups * (slot + 1) / num_slots};
}

// The sign of A for a group.
constexpr int SlabGroupSign(const SlabGroups& groups, std::int64_t group) {
  return (group - groups.begin) / kIntensityWarpgroups % 2 == 0 ? 1 : -1;
}

}  // namespace ridgeline::kernels::microbench
