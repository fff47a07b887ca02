#include "server/engine/benchmark/matrix_roofline.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/microbench/matrix_intensity.h"
#include "server/base/status_macros.h"
#include "server/engine/benchmark/pieces.h"

namespace ridgeline::engine::benchmark {
namespace {

using device::Buffer;
using kernels::microbench::kSlabBytes;
using kernels::microbench::MatrixIntensityParams;
using kernels::microbench::SlabGroups;
using kernels::microbench::SlabPatternParams;

struct Arrays {
  Buffer slabs, slice_sums;
};

// What a slot's sums come to: whole numbers, so that no rounding excuses a difference.
double SliceSum(const MatrixIntensityParams& params, const SlabGroups& groups) {
  std::int64_t signed_values = 0;
  for (std::int64_t group = groups.begin; group < groups.end; ++group) {
    signed_values += SlabGroupSign(groups, group) * kernels::microbench::SlabValue(group * params.slabs_per_product);
  }
  const std::int64_t slab_elements = kSlabBytes / MatrixElementBytes(params.type);
  return static_cast<double>(kernels::microbench::kWgmmaRows * slab_elements * params.products_per_slab * signed_values);
}

absl::Status Check(device::Lane& lane, const Arrays& arrays, const MatrixIntensityParams& params, std::int64_t num_slots) {
  RIDGELINE_ASSIGN_OR_RETURN(const std::vector<float> sums, ReadFloats(lane, arrays.slice_sums, num_slots));
  for (std::int64_t slot = 0; slot < num_slots; ++slot) {
    const double want = SliceSum(params, SlabGroupsOf(params, slot, num_slots));
    RIDGELINE_RETURN_IF_ERROR(ExpectNear(absl::StrCat("the sum of slice ", slot), sums[slot], want, 0));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Subject> MakeMatrixIntensity(const PointContext& context, const MatrixTypeRow& type, std::int64_t flops_per_byte,
                                            std::int64_t array_bytes) {
  RIDGELINE_RETURN_IF_ERROR(CheckMatrixUnit(context.device.info(), kernels::microbench::MatrixUnit::kWgmma, type));
  const std::int64_t of_one_product = kernels::microbench::SlabProductFlops(type.type) / kSlabBytes;
  MatrixIntensityParams params{};
  params.type = type.type;
  params.num_slabs = array_bytes / kSlabBytes;
  params.slabs_per_product = static_cast<int>(std::max<std::int64_t>(1, of_one_product / flops_per_byte));
  params.products_per_slab = static_cast<int>(std::max<std::int64_t>(1, flops_per_byte / of_one_product));
  const std::int64_t group_bytes = kSlabBytes * params.slabs_per_product;
  if (array_bytes % group_bytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("at ", flops_per_byte, " FLOP/B a product of ", type.name, " takes ",
                                                   group_bytes, " bytes; array_bytes is ", array_bytes,
                                                   ", which is no multiple of that"));
  }
  auto arrays = std::make_shared<Arrays>();
  const std::int64_t num_slots = context.device.info().compute_units;
  RIDGELINE_ASSIGN_OR_RETURN(arrays->slabs, context.lane.Allocate(array_bytes));
  RIDGELINE_ASSIGN_OR_RETURN(arrays->slice_sums, EmptyFloats(context, num_slots));
  params.slabs = arrays->slabs.data();
  params.slice_sums = static_cast<float*>(arrays->slice_sums.data());
  RIDGELINE_RETURN_IF_ERROR(
      context.lane.Run(SlabPatternParams{.type = type.type, .num_slabs = params.num_slabs, .slabs = arrays->slabs.data()}));
  return Subject{
      .kernel = absl::StrCat("matrix_intensity_cuda[", type.name, ",products=", params.products_per_slab, " of ",
                             params.slabs_per_product, "]"),
      .data_type = type.data_type,
      .has_roof = type.has_roof,
      .flops = MatrixIntensityFlops(params),
      .bytes = array_bytes,
      .queue = [params, arrays](device::Lane& lane) { return lane.Run(params); },
      .check = [&lane = context.lane, params, arrays, num_slots] { return Check(lane, *arrays, params, num_slots); }};
}

}  // namespace ridgeline::engine::benchmark
