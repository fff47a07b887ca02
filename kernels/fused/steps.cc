#include "kernels/fused/steps.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

#include "kernels/common/rounding.h"
#include "kernels/common/saturating.h"
#include "kernels/fused/dropout.h"

namespace ridgeline::kernels::fused {
namespace {

constexpr std::int64_t kAlignmentBytes = 256;
constexpr Value kNothing = {};

// Appends steps, each with a new intermediate value, and in the end finds the values memory.
class ChainBuilder {
 public:
  explicit ChainBuilder(const FusedShape& shape) : shape_(shape) {}

  // The result of a new step.
  Value Do(StepKind kind, Extent result, const Value& a, const Value& b = kNothing, float scale = 1, float shift = 0) {
    // Until Build, an intermediate value's offset is the index of the step that makes it.
    const Value made = {
        .buffer = Buffer::kWorkspace, .extent = result, .workspace_offset_bytes = static_cast<std::int64_t>(steps_.size())};
    steps_.push_back({.kind = kind, .a = a, .b = b, .result = made, .scale = scale, .shift = shift});
    return made;
  }
  Value Affine(const Value& a, float scale, float shift) { return Do(StepKind::kAffine, a.extent, a, kNothing, scale, shift); }

  // What the last step makes is the operation's own output.
  Value Output(Buffer buffer) {
    Value& result = steps_.back().result;
    result.buffer = buffer;
    return result;
  }

  Chain Build() &&;

 private:
  struct Slot {
    std::int64_t offset_bytes, size_bytes;
    bool taken;
  };

  std::size_t LastUse(const Value& value) const;
  std::int64_t Take(std::int64_t size_bytes);

  const FusedShape& shape_;
  std::vector<Step> steps_;
  std::vector<Slot> slots_;
  std::int64_t workspace_bytes_ = 0;
};

bool Same(const Value& a, const Value& b) {
  return a.buffer == Buffer::kWorkspace && b.buffer == Buffer::kWorkspace &&
         a.workspace_offset_bytes == b.workspace_offset_bytes;
}

std::size_t ChainBuilder::LastUse(const Value& value) const {
  std::size_t last = 0;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (Same(steps_[i].a, value) || Same(steps_[i].b, value)) last = i;
  }
  return last;
}

// A free slot of just this size, else a new one: values of a chain have few sizes.
std::int64_t ChainBuilder::Take(std::int64_t size_bytes) {
  for (Slot& slot : slots_) {
    if (slot.taken || slot.size_bytes != size_bytes) continue;
    slot.taken = true;
    return slot.offset_bytes;
  }
  slots_.push_back({.offset_bytes = workspace_bytes_, .size_bytes = size_bytes, .taken = true});
  workspace_bytes_ = SaturatingAdd(workspace_bytes_, size_bytes);
  return slots_.back().offset_bytes;
}

// A value's memory is free again after the last step that reads it, as an eager framework's would be.
Chain ChainBuilder::Build() && {
  std::vector<std::int64_t> offsets(steps_.size());
  std::vector<std::pair<std::size_t, std::int64_t>> uses;  // last step, offset
  Chain chain;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    Step step = steps_[i];
    if (step.result.buffer == Buffer::kWorkspace) {
      const std::int64_t bytes = SaturatingAdd(BytesOf(shape_, step.result.extent), kAlignmentBytes - 1);
      offsets[i] = Take(bytes / kAlignmentBytes * kAlignmentBytes);
      uses.emplace_back(LastUse(step.result), offsets[i]);
    }
    for (Value* value : {&step.a, &step.b, &step.result}) {
      if (value->buffer == Buffer::kWorkspace) value->workspace_offset_bytes = offsets[value->workspace_offset_bytes];
    }
    chain.steps.push_back(step);
    for (const auto& [last, offset] : uses) {
      if (last != i) continue;
      for (Slot& slot : slots_) slot.taken = slot.taken && slot.offset_bytes != offset;
    }
  }
  chain.workspace_bytes = workspace_bytes_;
  return chain;
}

Value Normalize(ChainBuilder& chain, const FusedShape& shape, const Value& x, bool subtracts_mean) {
  Value y = x;
  if (subtracts_mean) {
    const Value mean = chain.Do(StepKind::kRowMean, Extent::kPerRow, x);
    y = chain.Do(StepKind::kSubtract, Extent::kRows, x, mean);
  }
  const Value square = chain.Do(StepKind::kRowMeanSquare, Extent::kPerRow, y);
  const auto epsilon = static_cast<float>(shape.epsilon);
  const Value factor = chain.Do(StepKind::kRsqrt, Extent::kPerRow, square, kNothing, 1, epsilon);
  y = chain.Do(StepKind::kMultiply, Extent::kRows, y, factor);
  if (shape.has_weight) y = chain.Do(StepKind::kMultiply, Extent::kRows, y, {Buffer::kWeight, Extent::kColumns});
  if (shape.has_bias && subtracts_mean) y = chain.Do(StepKind::kAdd, Extent::kRows, y, {Buffer::kBias, Extent::kColumns});
  return y;
}

Value Softmax(ChainBuilder& chain, const Value& x) {
  const Value max = chain.Do(StepKind::kRowMax, Extent::kPerRow, x);
  const Value distance = chain.Do(StepKind::kSubtract, Extent::kRows, x, max);
  const Value exponential = chain.Do(StepKind::kExp, Extent::kRows, distance);
  const Value sum = chain.Do(StepKind::kRowSum, Extent::kPerRow, exponential);
  return chain.Do(StepKind::kDivide, Extent::kRows, exponential, sum);
}

Value Gelu(ChainBuilder& chain, const FusedShape& shape, const Value& x) {
  Value bell;  // from -1 to 1
  if (shape.gelu_form == GeluForm::kErf) {
    const Value scaled = chain.Affine(x, static_cast<float>(1 / std::numbers::sqrt2), 0);
    bell = chain.Do(StepKind::kErf, Extent::kRows, scaled);
  } else {
    const double factor = std::sqrt(2 / std::numbers::pi);
    const Value square = chain.Do(StepKind::kMultiply, Extent::kRows, x, x);
    const Value cubic = chain.Affine(square, static_cast<float>(factor * 0.044715), static_cast<float>(factor));
    const Value argument = chain.Do(StepKind::kMultiply, Extent::kRows, cubic, x);
    bell = chain.Do(StepKind::kTanh, Extent::kRows, argument);
  }
  const Value share = chain.Affine(bell, 0.5f, 0.5f);
  return chain.Do(StepKind::kMultiply, Extent::kRows, share, x);
}

void Dropout(ChainBuilder& chain, const FusedShape& shape, const Value& x) {
  Value mask = chain.Do(StepKind::kDropoutMask, Extent::kMask, kNothing);
  if (shape.has_mask) mask = chain.Output(Buffer::kMaskOutput);
  chain.Do(StepKind::kApplyMask, Extent::kRows, x, mask, RuleOf(shape.dropout).scale);
}

// The angles' tables hold a whole head's width, so that turning is two products and a sum.
struct RopeTables {
  Value cosine, sine;
};

RopeTables MakeTables(ChainBuilder& chain) {
  const Value revolutions = chain.Do(StepKind::kRopeRevolutions, Extent::kAngles, kNothing);
  return {chain.Do(StepKind::kCosine, Extent::kPerHead, revolutions), chain.Do(StepKind::kSine, Extent::kPerHead, revolutions)};
}

Value Turn(ChainBuilder& chain, const RopeTables& tables, const Value& x) {
  const Value straight = chain.Do(StepKind::kMultiply, x.extent, x, tables.cosine);
  const Value swapped = chain.Do(StepKind::kRopeSwap, x.extent, x);
  const Value across = chain.Do(StepKind::kMultiply, x.extent, swapped, tables.sine);
  return chain.Do(StepKind::kAdd, x.extent, straight, across);
}

}  // namespace

Chain UnfusedChain(const FusedShape& shape) {
  ChainBuilder chain(shape);
  const Value input = {Buffer::kInput, Extent::kRows};
  const Value other = {Buffer::kOther, Extent::kRows};
  const auto add_residual = [&chain, &input, &other] {
    chain.Do(StepKind::kAdd, Extent::kRows, input, other);
    return chain.Output(Buffer::kResidualOutput);
  };
  switch (shape.op) {
    case Op::kLayerNorm:
    case Op::kRmsNorm:
      Normalize(chain, shape, input, shape.op == Op::kLayerNorm);
      break;
    case Op::kAddLayerNorm:
    case Op::kAddRmsNorm:
      Normalize(chain, shape, add_residual(), shape.op == Op::kAddLayerNorm);
      break;
    case Op::kSoftmax:
      Softmax(chain, input);
      break;
    case Op::kGelu:
      Gelu(chain, shape, input);
      break;
    case Op::kBiasGelu:
      Gelu(chain, shape, chain.Do(StepKind::kAdd, Extent::kRows, input, {Buffer::kBias, Extent::kColumns}));
      break;
    case Op::kGeluAdd:
      chain.Do(StepKind::kAdd, Extent::kRows, Gelu(chain, shape, input), other);
      break;
    case Op::kLayerNormGeluDropout:
      Dropout(chain, shape, Gelu(chain, shape, Normalize(chain, shape, input, /*subtracts_mean=*/true)));
      break;
    case Op::kSwiglu: {
      const Value gate = chain.Do(StepKind::kSigmoid, Extent::kRows, input);
      const Value silu = chain.Do(StepKind::kMultiply, Extent::kRows, gate, input);
      chain.Do(StepKind::kMultiply, Extent::kRows, silu, other);
      break;
    }
    case Op::kRope:
    case Op::kRopeAppend: {
      const RopeTables tables = MakeTables(chain);
      if (shape.has_input) {
        Turn(chain, tables, input);
        chain.Output(Buffer::kOutput);
      }
      if (shape.op == Op::kRope) break;
      const Value keys = Turn(chain, tables, {Buffer::kKey, Extent::kKeys});
      chain.Do(StepKind::kAppend, Extent::kNone, keys);
      break;
    }
  }
  if (shape.op != Op::kRopeAppend) chain.Output(Buffer::kOutput);
  return std::move(chain).Build();
}

std::int64_t ElementsOf(const FusedShape& shape, Extent extent) {
  switch (extent) {
    case Extent::kNone:
      return 0;
    case Extent::kRows:
    case Extent::kMask:
      return SaturatingMultiply({shape.num_rows, shape.row_elems});
    case Extent::kKeys:
      return SaturatingMultiply({shape.num_rows, shape.key_elems});
    case Extent::kColumns:
      return shape.row_elems;
    case Extent::kPerRow:
      return shape.num_rows;
    case Extent::kAngles:
    case Extent::kPerHead:
      return SaturatingMultiply({shape.num_rows, shape.rope.head_dim});
  }
  return 0;
}

std::int64_t BytesOf(const FusedShape& shape, Extent extent) {
  std::int64_t element_bytes = ElementBytes(shape.data_type);
  if (extent == Extent::kPerRow || extent == Extent::kAngles) element_bytes = sizeof(float);
  if (extent == Extent::kMask) element_bytes = 1;
  return SaturatingMultiply({ElementsOf(shape, extent), element_bytes});
}

void* Address(const FusedParams& params, const Value& value) {
  switch (value.buffer) {
    case Buffer::kNone:
      return nullptr;
    case Buffer::kInput:
      return const_cast<void*>(params.input);  // steps only write to results, and no result is an input
    case Buffer::kOther:
      return const_cast<void*>(params.other);
    case Buffer::kWeight:
      return const_cast<void*>(params.weight);
    case Buffer::kBias:
      return const_cast<void*>(params.bias);
    case Buffer::kKey:
      return const_cast<void*>(params.append.key);
    case Buffer::kOutput:
      return params.output;
    case Buffer::kResidualOutput:
      return params.residual_output;
    case Buffer::kMaskOutput:
      return params.mask_output;
    case Buffer::kWorkspace:
      return static_cast<std::byte*>(params.workspace) + value.workspace_offset_bytes;
  }
  return nullptr;
}

int FlopsPerElement(StepKind kind) {
  switch (kind) {
    case StepKind::kAffine:
    case StepKind::kRsqrt:
    case StepKind::kRowMeanSquare:
    case StepKind::kRopeRevolutions:
      return 2;
    case StepKind::kRopeSwap:
    case StepKind::kDropoutMask:
    case StepKind::kAppend:
      return 0;
    default:
      return 1;
  }
}

}  // namespace ridgeline::kernels::fused
