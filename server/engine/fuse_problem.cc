#include "server/engine/fuse_problem.h"

#include "kernels/common/saturating.h"
#include "kernels/fused/op_info.h"
#include "kernels/fused/steps.h"

namespace ridgeline::engine {

using kernels::SaturatingAdd;
using kernels::fused::BytesOf;
using kernels::fused::Extent;
using kernels::fused::InfoOf;
using kernels::fused::Use;

std::int64_t FuseProblem::output_bytes() const { return shape.has_input ? BytesOf(shape, Extent::kRows) : 0; }

std::int64_t FuseProblem::residual_output_bytes() const {
  return InfoOf(shape.op).residual_output == Use::kNone ? 0 : BytesOf(shape, Extent::kRows);
}

std::int64_t FuseProblem::mask_bytes() const { return shape.has_mask ? BytesOf(shape, Extent::kMask) : 0; }

std::int64_t FuseProblem::device_bytes(kernels::fused::Mode mode) const {
  std::int64_t bytes = workspace_bytes(mode);
  for (const TensorSource* source : sources()) bytes = SaturatingAdd(bytes, source->size_bytes());
  for (const std::int64_t output : {output_bytes(), residual_output_bytes(), mask_bytes()})
    bytes = SaturatingAdd(bytes, output);
  return bytes;
}

std::int64_t FuseProblem::answer_bytes() const {
  return discard ? 0 : SaturatingAdd(SaturatingAdd(output_bytes(), residual_output_bytes()), mask_bytes());
}

}  // namespace ridgeline::engine
