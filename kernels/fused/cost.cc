#include "kernels/fused/cost.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "kernels/common/saturating.h"
#include "kernels/fused/op_info.h"
#include "kernels/fused/steps.h"

namespace ridgeline::kernels::fused {
namespace {

constexpr std::int64_t kPositionBytes = sizeof(std::int64_t);

std::int64_t PositionsBytes(const FusedShape& shape) {
  return InfoOf(shape.op).has_rope && shape.has_positions ? SaturatingMultiply({shape.num_rows, kPositionBytes}) : 0;
}

// Rows of values, read and written to the pages.
std::int64_t ValuesBytes(const FusedShape& shape) {
  return SaturatingMultiply({2, shape.num_rows, shape.value_elems, ElementBytes(shape.data_type)});
}

std::int64_t FusedBytes(const FusedShape& shape) {
  const OpInfo& info = InfoOf(shape.op);
  std::int64_t bytes = PositionsBytes(shape);
  const auto add = [&](bool moved, Extent extent) {
    if (moved) bytes = SaturatingAdd(bytes, BytesOf(shape, extent));
  };
  const bool has_input = info.input == Use::kRequired || shape.has_input;
  add(has_input, Extent::kRows);  // input
  add(has_input, Extent::kRows);  // output
  add(info.other == Use::kRequired, Extent::kRows);
  add(info.residual_output == Use::kRequired, Extent::kRows);
  add(info.mask_output != Use::kNone && shape.has_mask, Extent::kMask);
  add(info.weight != Use::kNone && shape.has_weight, Extent::kColumns);
  add(info.bias == Use::kRequired || (info.bias == Use::kOptional && shape.has_bias), Extent::kColumns);
  add(info.appends, Extent::kKeys);  // read
  add(info.appends, Extent::kKeys);  // written to the pages
  if (info.appends) bytes = SaturatingAdd(bytes, ValuesBytes(shape));
  return bytes;
}

bool IsSquare(const Step& step) {
  return step.a.buffer != Buffer::kNone && step.a.buffer == step.b.buffer &&
         step.a.workspace_offset_bytes == step.b.workspace_offset_bytes;
}

std::int64_t StepBytes(const FusedShape& shape, const Step& step) {
  std::int64_t bytes = 0;
  for (const Value& value : {step.a, step.b, step.result}) bytes = SaturatingAdd(bytes, BytesOf(shape, value.extent));
  if (IsSquare(step)) bytes -= BytesOf(shape, step.b.extent);  // read once
  if (step.kind == StepKind::kRopeRevolutions) bytes = SaturatingAdd(bytes, PositionsBytes(shape));
  if (step.kind == StepKind::kAppend) {
    bytes = SaturatingAdd(bytes, SaturatingAdd(BytesOf(shape, Extent::kKeys), ValuesBytes(shape)));
  }
  return bytes;
}

// Of a row's statistic the row counts, else the result.
std::int64_t StepFlops(const FusedShape& shape, const Step& step) {
  const std::int64_t elements = std::max(ElementsOf(shape, step.a.extent), ElementsOf(shape, step.result.extent));
  return SaturatingMultiply({elements, FlopsPerElement(step.kind)});
}

}  // namespace

Cost CountCost(const FusedShape& shape, Mode mode) {
  const Chain chain = UnfusedChain(shape);
  Cost cost = {.flops = 0, .bytes = 0, .num_kernels = static_cast<int>(chain.steps.size())};
  for (const Step& step : chain.steps) {
    cost.flops = SaturatingAdd(cost.flops, StepFlops(shape, step));
    cost.bytes = SaturatingAdd(cost.bytes, StepBytes(shape, step));
  }
  if (mode == Mode::kFused) {
    cost.bytes = FusedBytes(shape);
    cost.num_kernels = 1;
  }
  return cost;
}

std::int64_t WorkspaceBytes(const FusedShape& shape, Mode mode) {
  return mode == Mode::kFused ? 0 : UnfusedChain(shape).workspace_bytes;
}

}  // namespace ridgeline::kernels::fused
